#include "engine/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "base/strings.h"

namespace tessera::engine {
namespace {

using gguf::GgmlType;

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

constexpr std::string_view kUntouched[] = {"ffn_gate_inp", "position_embd", "token_types", "attn_rel_b"};

}  // namespace

std::vector<std::string_view> recipes() {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : kRecipes) names.push_back(recipe.name);
  return names;
}

Result<const Recipe*> find_recipe(std::string_view name) {
  std::string wanted(name);
  for (char& c : wanted)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  for (const Recipe& recipe : kRecipes)
    if (recipe.name == wanted || recipe.name == wanted + "_M") return &recipe;
  return fail(Code::usage, "there is no type '{}' of weights: {}", name, joined(recipes(), " "));
}

int64_t layer_of(std::string_view name) {
  int64_t layer = -1;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

GgmlType type_for(const Recipe& recipe, const StoredWeight& weight, int64_t layers, bool tied) {
  const std::string_view name = weight.name;
  if (weight.axes < 2 || weight.row == 0 || !name.ends_with(".weight")) return weight.type;
  for (std::string_view part : kUntouched)
    if (name.find(part) != std::string_view::npos) return weight.type;
  GgmlType type = recipe.base;
  if (name == "output.weight" || (tied && name == "token_embd.weight")) type = recipe.output;
  const bool value = name.ends_with("attn_v.weight") || name.ends_with("attn_qkv.weight") ||
                     name.find("ffn_down") != std::string_view::npos;
  if (value && is_sensitive(layer_of(name), layers)) type = recipe.more;
  return fitting(type, weight.row, weight.type);
}

}  // namespace tessera::engine
