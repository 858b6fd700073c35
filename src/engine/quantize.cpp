#include "engine/quantize.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "engine/recipe.h"
#include "formats/gguf.h"
#include "tensor/block.h"

namespace tessera::engine {
namespace {

using gguf::GgmlType;

// Squares of what rounding moved, and of the values.
struct Squares {
  double moved = 0, all = 0;
};
Status compare(const Tensor& before, const Tensor& after, ThreadPool* pool, Squares& squares) {
  TESSERA_ASSIGN(const Tensor a, convert_weights(before, DType::f32, pool));
  TESSERA_ASSIGN(const Tensor b, convert_weights(after, DType::f32, pool));
  for (int64_t i = 0; i < a.count(); ++i) {
    const double x = static_cast<double>(a.as<float>()[i]), y = static_cast<double>(b.as<float>()[i]);
    squares.moved += (x - y) * (x - y);
    squares.all += x * x;
  }
  return {};
}

}  // namespace

Result<QuantizeReport> quantize_gguf(const std::string& from, const std::string& to, const QuantizeOptions& options) {
  TESSERA_ASSIGN(const Recipe* recipe, find_recipe(options.recipe));
  TESSERA_ASSIGN(const gguf::File file, gguf::File::open(from));
  gguf::Writer writer;
  for (const auto& [key, value] : file.metadata())
    if (key != "general.alignment") writer.set(key, value);
  writer.set_u32("general.file_type", recipe->file_type);
  writer.set_u32("general.quantization_version", 2);

  int64_t layers = 0;
  for (const gguf::TensorInfo& info : file.tensors()) layers = std::max(layers, layer_of(info.name) + 1);
  const bool tied = file.find_tensor("output.weight") == nullptr;
  QuantizeReport report;
  std::vector<Squares> squares;
  size_t done = 0;
  for (const gguf::TensorInfo& info : file.tensors()) {
    const StoredWeight weight{info.name, static_cast<int64_t>(info.shape.size()),
                              info.bytes > 0 && !info.shape.empty() ? info.shape.back() : 0, info.type};
    const GgmlType type = type_for(*recipe, weight, layers, tied);
    const std::string_view word = gguf::describe(type).name;
    auto kind = std::find_if(report.kinds.begin(), report.kinds.end(), [&](const auto& k) { return k.type == word; });
    if (kind == report.kinds.end()) kind = report.kinds.insert(kind, {std::string(word), 0, 0, 0});
    const auto index = static_cast<size_t>(kind - report.kinds.begin());
    squares.resize(report.kinds.size());
    TESSERA_ASSIGN(const uint64_t bytes, gguf::byte_size(info.name, type, info.shape));
    ++kind->tensors;
    kind->bytes += static_cast<int64_t>(bytes);
    report.bytes_before += static_cast<int64_t>(info.bytes);
    report.bytes_after += static_cast<int64_t>(bytes);
    writer.add(std::string(info.name), type, info.shape, [&, type, index]() -> Result<Tensor> {
      if (options.progress) TESSERA_TRY(options.progress(done++, file.tensors().size()));
      TESSERA_ASSIGN(Tensor tensor, file.tensor(info));
      const std::optional<DType> wanted = gguf::to_dtype(type);
      if (!wanted || *wanted == tensor.dtype()) return tensor;
      TESSERA_ASSIGN(Tensor made, convert_weights(tensor, *wanted, options.pool));
      TESSERA_TRY(compare(tensor, made, options.pool, squares[index]));
      return made;
    });
  }
  TESSERA_TRY(writer.write(to, static_cast<uint32_t>(file.alignment())));
  for (size_t i = 0; i < squares.size(); ++i)
    if (squares[i].all > 0) report.kinds[i].error = std::sqrt(squares[i].moved / squares[i].all);
  return report;
}

}  // namespace tessera::engine
