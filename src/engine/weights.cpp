#include "engine/weights.h"

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/result.h"
#include "engine/recipe.h"
#include "import/gguf/names.h"
#include "tensor/block.h"

namespace tessera::engine {
namespace {

using transformer::Key;
using transformer::Part;

// w [K, N] as [N, K], in f32: blocks lie along the inputs.
Result<Tensor> turn(const Tensor& w, ThreadPool* pool) {
  TESSERA_ASSIGN(const Tensor from, convert_weights(w, DType::f32, pool));
  const int64_t rows = w.shape()[0], columns = w.shape()[1];
  TESSERA_ASSIGN(Tensor to, Tensor::make(DType::f32, {columns, rows}));
  constexpr int64_t kBand = 16;  // rows whose elements of a column share a cache line of the result
  for (int64_t band = 0; band < rows; band += kBand)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = band; i < std::min(rows, band + kBand); ++i)
        to.as<float>()[j * rows + i] = from.as<float>()[i * columns + j];
  return to;
}

class Converted final : public transformer::Weights {
 public:
  Converted(const transformer::Source& source, const Recipe& recipe, std::shared_ptr<ThreadPool> pool)
      : inner_(source.weights), config_(source.config), recipe_(recipe), pool_(std::move(pool)) {}

  std::string name(const Key& key) const override { return inner_->name(key); }

  Result<Tensor> get(const Key& key) const override {
    const bool table = key.part == Part::tokens && !key.bias;
    if (table && table_) return *table_;
    TESSERA_ASSIGN(const Tensor whole, inner_->get(key));
    Result<Tensor> made = convert(key, whole);
    if (!made) return tl::unexpected(std::move(made).error().within("converting tensor '" + name(key) + "'"));
    if (made->data() != whole.data()) MappedFile::release_at(whole.data(), whole.bytes());
    // Asked for twice where it is the last matrix too: both are one constant then.
    if (table && config_.tied) table_ = *made;
    return made;
  }

 private:
  Result<Tensor> convert(const Key& key, const Tensor& whole) const {
    const std::optional<gguf::GgmlType> stored = gguf::from_dtype(whole.dtype());
    if (!stored || whole.rank() != 2) return whole;
    const bool turned = config_.input_major && is_projection(key.part);
    const std::string name = gguf_import::tensor_name(key, false);
    const gguf::GgmlType wanted = type_for(recipe_, {name, 2, whole.shape()[turned ? 0 : 1], *stored},
                                           static_cast<int64_t>(config_.layers.size()), config_.tied);
    const std::optional<DType> type = gguf::to_dtype(wanted);
    if (!turned) return !type || *type == whole.dtype() ? whole : convert_weights(whole, *type, pool_.get());
    TESSERA_ASSIGN(Tensor rows, turn(whole, pool_.get()));
    return convert_weights(rows, type.value_or(whole.dtype()), pool_.get());
  }

  std::shared_ptr<const transformer::Weights> inner_;
  transformer::Config config_;
  const Recipe& recipe_;
  std::shared_ptr<ThreadPool> pool_;
  mutable std::optional<Tensor> table_;
};

}  // namespace

Result<transformer::Source> with_weights(const transformer::Source& source, std::string_view recipe,
                                         std::shared_ptr<ThreadPool> pool) {
  transformer::Source made = source;
  if (recipe.empty() || recipe == "keep") return made;
  TESSERA_ASSIGN(const Recipe* found, find_recipe(recipe));
  made.weights = std::make_shared<Converted>(source, *found, std::move(pool));
  made.config.input_major = false;
  return made;
}

}  // namespace tessera::engine
