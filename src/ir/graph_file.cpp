#include "ir/graph_file.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/file.h"
#include "ir/printer.h"

namespace tessera::ir {
namespace {

constexpr int64_t kMaxInline = 256;           // elements: more is hard to read
constexpr int64_t kAlignment = 64;            // of constants in their file: a cache line, and the widest vector
constexpr size_t kMaxText = size_t{1} << 30;  // bytes

// The folder of a path, with its last slash; "./" when it has none.
std::string folder_of(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

std::string weights_path(const std::string& path) {
  size_t dot = path.rfind('.'), slash = path.rfind('/');
  bool has_ending = dot != std::string::npos && (slash == std::string::npos || dot > slash + 1);
  return (has_ending ? path.substr(0, dot) : path) + ".weights";
}

class Loader {
 public:
  explicit Loader(std::string folder) : folder_(std::move(folder)) {}

  Result<Tensor> load(const ExternalData& data, DType dtype, const Dims& shape) {
    std::shared_ptr<const MappedFile>& file = files_[data.file];
    if (file == nullptr) {
      TESSERA_ASSIGN(file, MappedFile::open_inside(folder_, data.file));
    }
    const auto size = static_cast<int64_t>(file->bytes().size());
    if (data.offset > size || data.length > size - data.offset)
      return fail(Code::file_truncated, "'{}' has {} bytes, but a constant lies at {} and takes {}", data.file, size,
                  data.offset, data.length);
    const std::byte* begin = file->bytes().data() + data.offset;
    // Elements are read as their C++ type, which must be aligned.
    if (data.length > 0 && reinterpret_cast<uintptr_t>(begin) % static_cast<size_t>(std::max(bits(dtype) / 8, 1)) == 0)
      return Tensor::borrow(dtype, shape, begin, file);
    TESSERA_ASSIGN(Tensor copy, Tensor::make(dtype, shape));
    std::copy_n(begin, data.length, static_cast<std::byte*>(copy.mutable_data()));
    return copy;
  }

 private:
  std::string folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

}  // namespace

Result<Graph> load_graph(const std::string& path, const OpFinder& find_op) {
  TESSERA_ASSIGN(std::string text, read_file(path, kMaxText));
  Loader loader(folder_of(path));
  ParseOptions options;
  options.load = [&](const ExternalData& data, DType dtype, const Dims& shape) {
    return loader.load(data, dtype, shape);
  };
  Result<Graph> graph = parse_graph(text, find_op, options);
  if (!graph) return tl::unexpected<Error>(std::move(graph).error().within(fmt::format("loading '{}'", path)));
  return graph;
}

Status save_graph(const Graph& graph, const std::string& path) {
  const std::string weights = weights_path(path);
  std::optional<AtomicFile> file;
  Status written;
  PrintOptions options;
  options.max_inline = kMaxInline;
  options.external = [&](const Tensor& tensor) -> std::optional<ExternalData> {
    if (!written) return std::nullopt;
    if (!file) {
      Result<AtomicFile> created = AtomicFile::create(weights);
      if (!created) {
        written = tl::unexpected<Error>(std::move(created).error());
        return std::nullopt;
      }
      file.emplace(std::move(*created));
    }
    static constexpr std::byte kZeros[kAlignment] = {};
    const auto past = static_cast<int64_t>(file->position()) % kAlignment;
    if (past != 0) written = file->write(std::span(kZeros).first(static_cast<size_t>(kAlignment - past)));
    ExternalData data{weights.substr(weights.rfind('/') + 1), static_cast<int64_t>(file->position()),
                      static_cast<int64_t>(tensor.bytes())};
    if (written) written = file->write(std::span(static_cast<const std::byte*>(tensor.data()), tensor.bytes()));
    return data;
  };
  const std::string text = print(graph, options);
  TESSERA_TRY(written);
  if (file) TESSERA_TRY(file->commit());
  return write_file_atomic(path, text);
}

}  // namespace tessera::ir
