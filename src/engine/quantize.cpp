#include "engine/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/result.h"
#include "base/strings.h"
#include "formats/gguf.h"
#include "tensor/block.h"

namespace tessera::engine {
namespace {

using gguf::GgmlType;

// Which type each matrix gets. `more` goes to the value and down projections of the layers where rounding hurts most,
// `output` to the last matrix; the mixes carry the names under which such files are known.
struct Recipe {
  std::string_view name;
  uint32_t file_type;  // general.file_type
  GgmlType base, more, output;
};
constexpr Recipe kRecipes[] = {
    {"F32", 0, GgmlType::F32, GgmlType::F32, GgmlType::F32},
    {"F16", 1, GgmlType::F16, GgmlType::F16, GgmlType::F16},
    {"BF16", 32, GgmlType::BF16, GgmlType::BF16, GgmlType::BF16},
    {"Q8_0", 7, GgmlType::Q8_0, GgmlType::Q8_0, GgmlType::Q8_0},
    {"Q4_0", 2, GgmlType::Q4_0, GgmlType::Q4_0, GgmlType::Q6_K},
    {"Q4_1", 3, GgmlType::Q4_1, GgmlType::Q4_1, GgmlType::Q6_K},
    {"Q5_0", 8, GgmlType::Q5_0, GgmlType::Q5_0, GgmlType::Q6_K},
    {"Q5_1", 9, GgmlType::Q5_1, GgmlType::Q5_1, GgmlType::Q6_K},
    {"IQ4_NL", 25, GgmlType::IQ4_NL, GgmlType::IQ4_NL, GgmlType::Q6_K},
    {"IQ4_XS", 30, GgmlType::IQ4_XS, GgmlType::IQ4_XS, GgmlType::Q6_K},
    {"Q2_K", 10, GgmlType::Q2_K, GgmlType::Q3_K, GgmlType::Q6_K},
    {"Q3_K_S", 11, GgmlType::Q3_K, GgmlType::Q3_K, GgmlType::Q6_K},
    {"Q3_K_M", 12, GgmlType::Q3_K, GgmlType::Q4_K, GgmlType::Q6_K},
    {"Q4_K_S", 14, GgmlType::Q4_K, GgmlType::Q4_K, GgmlType::Q6_K},
    {"Q4_K_M", 15, GgmlType::Q4_K, GgmlType::Q6_K, GgmlType::Q6_K},
    {"Q5_K_S", 16, GgmlType::Q5_K, GgmlType::Q5_K, GgmlType::Q6_K},
    {"Q5_K_M", 17, GgmlType::Q5_K, GgmlType::Q6_K, GgmlType::Q6_K},
    {"Q6_K", 18, GgmlType::Q6_K, GgmlType::Q6_K, GgmlType::Q6_K},
};

// The layer in "blk.12.attn_v.weight"; -1 elsewhere.
int64_t layer_of(std::string_view name) {
  int64_t layer = -1;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

// The first and the last eighth of the layers, and every third of those between.
bool is_sensitive(int64_t layer, int64_t layers) {
  const int64_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

// The type itself, or the nearest with shorter blocks where rows do not divide.
GgmlType fitting(GgmlType type, int64_t row, GgmlType otherwise) {
  const auto divides = [row](GgmlType t) { return row % gguf::describe(t).elements == 0; };
  if (divides(type)) return type;
  const GgmlType shorter = type == GgmlType::Q6_K     ? GgmlType::Q8_0
                           : type == GgmlType::Q5_K   ? GgmlType::Q5_1
                           : type == GgmlType::IQ4_XS ? GgmlType::IQ4_NL
                                                      : GgmlType::Q5_0;
  return divides(shorter) ? shorter : otherwise;
}

GgmlType type_for(const Recipe& recipe, const gguf::TensorInfo& info, int64_t layers, bool tied) {
  const bool matrix = info.shape.size() >= 2 && info.name.ends_with(".weight") && info.bytes > 0;
  // Small ones decide much and cost nothing: experts' gates and positions.
  if (!matrix || info.name.find("ffn_gate_inp") != std::string_view::npos ||
      info.name.find("position_embd") != std::string_view::npos)
    return info.type;
  GgmlType type = recipe.base;
  if (info.name == "output.weight" || (tied && info.name == "token_embd.weight")) type = recipe.output;
  const bool value = info.name.ends_with("attn_v.weight") || info.name.ends_with("attn_qkv.weight") ||
                     info.name.find("ffn_down") != std::string_view::npos;
  if (value && is_sensitive(layer_of(info.name), layers)) type = recipe.more;
  return fitting(type, info.shape.back(), info.type);
}

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

std::vector<std::string_view> recipes() {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : kRecipes) names.push_back(recipe.name);
  return names;
}

Result<QuantizeReport> quantize_gguf(const std::string& from, const std::string& to, const QuantizeOptions& options) {
  std::string wanted = options.recipe;
  std::transform(wanted.begin(), wanted.end(), wanted.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  const auto* recipe = std::find_if(std::begin(kRecipes), std::end(kRecipes), [&](const Recipe& r) {
    return r.name == wanted || r.name == wanted + "_M";  // "Q4_K" is its middle mix
  });
  if (recipe == std::end(kRecipes)) {
    const std::vector<std::string_view> names = recipes();
    return fail(Code::usage, "there is no type '{}': {}", options.recipe, fmt::join(names, " "));
  }
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
    const GgmlType type = type_for(*recipe, info, layers, tied);
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
