#include "engine/values.h"

#include "base/file.h"
#include "base/result.h"
#include "formats/npy.h"
#include "import/onnx/value_proto.h"

namespace tessera::engine {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr size_t kLongestName =
    200;  // file systems allow 255 bytes, of which the ending and a temporary name take some

onnx::ValueKind kind_of(const ValueInfo& info) {
  return info.kind == ValueInfo::Kind::tensor     ? onnx::ValueKind::tensor
         : info.kind == ValueInfo::Kind::sequence ? onnx::ValueKind::sequence
                                                  : onnx::ValueKind::optional;
}

std::string file_name(const std::string& name) {
  std::string safe;
  for (const char c : name.substr(0, kLongestName)) {
    const bool keep = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
                      c == '_' || (c == '.' && !safe.empty());
    safe += keep ? c : '_';
  }
  return safe.empty() ? "_" : safe;
}

Result<Value> parse(const std::shared_ptr<const MappedFile>& file, const ValueInfo& info) {
  if (file->size() == 0) return fail(Code::unknown_format, "the file is empty: neither .npy nor .pb");
  if (!file->text().starts_with(kNpyMagic))
    return onnx::parse_value(file->bytes(), kind_of(info), info.dtype, {.file = file});
  TESSERA_ASSIGN(Tensor tensor, parse_npy(file->bytes(), file, info.dtype));
  return Value(std::move(tensor));
}

}  // namespace

Result<Value> read_value(const std::string& path, const ValueInfo& info) {
  TESSERA_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  Result<Value> value = parse(file, info);
  if (!value) return tl::unexpected<Error>(std::move(value.error()).within("reading '" + path + "'"));
  return value;
}

Result<std::string> write_value(const std::string& folder, const NamedValue& value) {
  const Tensor* tensor = value.value.tensor();
  const bool npy = tensor != nullptr && tensor->dtype() != DType::string;
  std::string path = folder + "/" + file_name(value.name) + (npy ? ".npy" : ".pb");
  Status written = npy ? write_npy(path, *tensor)
                       : write_file_atomic(path, std::string_view(onnx::serialize(value.value, value.name)));
  if (!written) return tl::unexpected<Error>(std::move(written).error());
  return path;
}

}  // namespace tessera::engine
