#include "formats/ggml_type.h"

#include <algorithm>

#include "base/result.h"

namespace tessera::gguf {
namespace {

constexpr GgmlTypeInfo kTypes[] = {
#define TESSERA_GGML_TYPE(number, name, elements, bytes) {GgmlType::name, #name, elements, bytes},
#include "formats/ggml_type.def"
#undef TESSERA_GGML_TYPE
};

struct Pair {
  GgmlType file;
  DType ours;
};
constexpr Pair kPairs[] = {
    {GgmlType::F32, DType::f32},   {GgmlType::F16, DType::f16},       {GgmlType::BF16, DType::bf16},
    {GgmlType::F64, DType::f64},   {GgmlType::I8, DType::i8},         {GgmlType::I16, DType::i16},
    {GgmlType::I32, DType::i32},   {GgmlType::I64, DType::i64},       {GgmlType::Q8_0, DType::q8_0},
    {GgmlType::Q4_0, DType::q4_0}, {GgmlType::Q4_1, DType::q4_1},     {GgmlType::Q5_0, DType::q5_0},
    {GgmlType::Q5_1, DType::q5_1}, {GgmlType::IQ4_NL, DType::iq4_nl}, {GgmlType::IQ4_XS, DType::iq4_xs},
    {GgmlType::Q2_K, DType::q2_k}, {GgmlType::Q3_K, DType::q3_k},     {GgmlType::Q4_K, DType::q4_k},
    {GgmlType::Q5_K, DType::q5_k}, {GgmlType::Q6_K, DType::q6_k},
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

const GgmlTypeInfo* find_type(uint32_t number) {
  for (const GgmlTypeInfo& info : kTypes)
    if (static_cast<uint32_t>(info.type) == number) return &info;
  return nullptr;
}

const GgmlTypeInfo& describe(GgmlType type) {
  const GgmlTypeInfo* info = find_type(static_cast<uint32_t>(type));
  TESSERA_CHECK(info != nullptr);
  return *info;
}

std::optional<GgmlType> parse_type(std::string_view name) {
  for (const GgmlTypeInfo& info : kTypes)
    if (std::equal(name.begin(), name.end(), info.name.begin(), info.name.end(),
                   [](char a, char b) { return lower(a) == lower(b); }))
      return info.type;
  return std::nullopt;
}

std::optional<DType> to_dtype(GgmlType type) {
  for (const Pair& pair : kPairs)
    if (pair.file == type) return pair.ours;
  return std::nullopt;
}

std::optional<GgmlType> from_dtype(DType type) {
  for (const Pair& pair : kPairs)
    if (pair.ours == type) return pair.file;
  return std::nullopt;
}

}  // namespace tessera::gguf
