#include "engine/quantize.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/result.h"
#include "engine/recipe.h"
#include "formats/gguf.h"
#include "import/gguf/export.h"
#include "import/gguf/import.h"
#include "import/huggingface/import.h"
#include "tensor/block.h"
#include "text/gguf_vocabulary.h"

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

// A model as a GGUF file is to hold it, before its matrices are made smaller.
struct Draft {
  struct Item {
    std::string name;
    Dims shape;
    GgmlType type;
    std::function<Result<Tensor>()> data;
  };
  gguf::Writer writer;
  std::vector<Item> items;
  uint32_t alignment = 32;
  std::optional<transformer::Config> config;  // of a folder: what the file must say
};

Result<Draft> draft_of_file(const std::string& path) {
  TESSERA_ASSIGN(gguf::File opened, gguf::File::open(path));
  const auto file = std::make_shared<const gguf::File>(std::move(opened));
  Draft draft;
  for (const auto& [key, value] : file->metadata())
    if (key != "general.alignment") draft.writer.set(key, value);
  for (const gguf::TensorInfo& info : file->tensors())
    draft.items.push_back(
        {std::string(info.name), info.shape, info.type, [file, &info] { return file->tensor(info); }});
  draft.alignment = static_cast<uint32_t>(file->alignment());
  return draft;
}

Result<Draft> draft_of_folder(const std::string& path) {
  TESSERA_ASSIGN(const transformer::Source source, huggingface::open(path));
  Draft draft;
  TESSERA_TRY(gguf_import::write_config(source.config, draft.writer));
  TESSERA_ASSIGN(std::vector<gguf_import::Exported> weights, gguf_import::export_weights(source));
  TESSERA_TRY(text::write_gguf_vocabulary(path, source.config.vocabulary, draft.writer));
  for (gguf_import::Exported& weight : weights) {
    const std::optional<GgmlType> type = gguf::from_dtype(weight.type);
    if (!type)
      return fail(Code::unsupported_feature, "tensor '{}' is of type {}, which GGUF files do not hold", weight.name,
                  tessera::name(weight.type));
    draft.items.push_back({std::move(weight.name), std::move(weight.shape), *type, std::move(weight.data)});
  }
  draft.config = source.config;
  return draft;
}

}  // namespace

Result<QuantizeReport> quantize(const std::string& from, const std::string& to, const QuantizeOptions& options) {
  TESSERA_ASSIGN(const Recipe* recipe, find_recipe(options.recipe));
  TESSERA_ASSIGN(Draft draft, huggingface::is_model_folder(from) ? draft_of_folder(from) : draft_of_file(from));
  gguf::Writer& writer = draft.writer;
  writer.set_u32("general.file_type", recipe->file_type);
  writer.set_u32("general.quantization_version", 2);

  int64_t layers = 0;
  bool tied = true;
  for (const Draft::Item& item : draft.items) {
    layers = std::max(layers, layer_of(item.name) + 1);
    tied = tied && item.name != "output.weight";
  }
  QuantizeReport report;
  std::vector<Squares> squares;
  size_t done = 0;
  for (const Draft::Item& item : draft.items) {
    const int64_t row = item.shape.empty() ? 0 : item.shape.back();
    const GgmlType type =
        type_for(*recipe, {item.name, static_cast<int64_t>(item.shape.size()), row, item.type}, layers, tied);
    const std::string_view word = gguf::describe(type).name;
    auto kind = std::find_if(report.kinds.begin(), report.kinds.end(), [&](const auto& k) { return k.type == word; });
    if (kind == report.kinds.end()) kind = report.kinds.insert(kind, {std::string(word), 0, 0, 0});
    const auto index = static_cast<size_t>(kind - report.kinds.begin());
    squares.resize(report.kinds.size());
    TESSERA_ASSIGN(const uint64_t before, gguf::byte_size(item.name, item.type, item.shape));
    TESSERA_ASSIGN(const uint64_t bytes, gguf::byte_size(item.name, type, item.shape));
    ++kind->tensors;
    kind->bytes += static_cast<int64_t>(bytes);
    report.bytes_before += static_cast<int64_t>(before);
    report.bytes_after += static_cast<int64_t>(bytes);
    writer.add(item.name, type, item.shape, [&, type, index]() -> Result<Tensor> {
      if (options.progress) TESSERA_TRY(options.progress(done++, draft.items.size()));
      TESSERA_ASSIGN(Tensor tensor, item.data());
      const std::optional<DType> wanted = gguf::to_dtype(type);
      if (!wanted || *wanted == tensor.dtype()) return tensor;
      TESSERA_ASSIGN(Tensor made, convert_weights(tensor, *wanted, options.pool));
      TESSERA_TRY(compare(tensor, made, options.pool, squares[index]));
      return made;
    });
  }
  // Much of what a folder says follows in GGUF from the architecture's name: it is read back.
  const auto says_the_same = [&](const std::string& path) -> Status {
    if (!draft.config) return {};
    TESSERA_ASSIGN(const transformer::Source written, gguf_import::open(path));
    return gguf_import::check_exported(*draft.config, written.config);
  };
  TESSERA_TRY(writer.write(to, draft.alignment, says_the_same));
  for (size_t i = 0; i < squares.size(); ++i)
    if (squares[i].all > 0) report.kinds[i].error = std::sqrt(squares[i].moved / squares[i].all);
  return report;
}

}  // namespace tessera::engine
