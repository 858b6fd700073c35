#include "engine/model.h"

#include "base/file.h"
#include "base/result.h"
#include "import/onnx/import.h"

namespace tessera {
namespace {

// The fields of ONNX's ModelProto, of which a file has one first: a tag is field << 3 | wire type.
bool begins_as_onnx(std::span<const std::byte> bytes) {
  const auto first = static_cast<unsigned>(bytes.front());
  const unsigned field = first >> 3, wire = first & 7;
  const bool number = field == 1 || field == 5, text = field >= 2 && field <= 4, message = field >= 6 && field <= 15;
  return (number && wire == 0) || ((text || message) && wire == 2);
}

Result<Model::Impl::Format> format_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) return fail(Code::unknown_format, "the file is empty");
  if (begins_as_onnx(bytes)) return Model::Impl::Format::onnx;
  return fail(Code::unknown_format, "the file begins with byte 0x{:02x}, as no kind of model does",
              static_cast<unsigned>(bytes.front()));
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::vector<ValueInfo> describe_inputs(const ir::Graph& graph) {
  std::vector<ValueInfo> infos;
  for (ir::ValueId id : graph.inputs)
    infos.push_back(engine::describe(graph.type(id), std::string(graph.value_name(id))));
  return infos;
}

std::vector<ValueInfo> describe_outputs(const ir::Graph& graph) {
  std::vector<ValueInfo> infos;
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    infos.push_back(
        engine::describe(graph.type(graph.outputs[i]), std::string(graph.context().text(graph.output_names[i]))));
  return infos;
}

}  // namespace

Result<std::shared_ptr<Model::Impl>> Model::Impl::open(std::span<const std::byte> bytes,
                                                       std::shared_ptr<const void> keep, std::string path,
                                                       std::string folder, LoadOptions options) {
  TESSERA_ASSIGN(const Format format, format_of(bytes));
  for (const DimRange& range : options.dims)
    if (range.lo < 0 || range.lo > range.hi)
      return fail(Code::shape_invalid, "the range of '{}' is [{}, {}], which no size has", range.name, range.lo,
                  range.hi);
  auto impl = std::make_shared<Impl>();
  impl->bytes_ = bytes;
  impl->keep_ = std::move(keep);
  impl->path_ = std::move(path);
  impl->folder_ = std::move(folder);
  impl->format_ = format;
  impl->options_ = std::move(options);
  TESSERA_ASSIGN(impl->first_, impl->make_graph({}));
  impl->inputs_ = describe_inputs(*impl->first_);
  impl->outputs_ = describe_outputs(*impl->first_);
  return impl;
}

Result<ir::Graph> Model::Impl::make_graph(std::span<const Value> inputs) const {
  onnx::ImportOptions import;
  for (const DimRange& range : options_.dims) import.dims[range.name] = {range.lo, range.hi};
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const Tensor* tensor = inputs[i].tensor()) import.input_shapes[inputs_[i].name] = tensor->shape();
  return onnx::import_onnx(bytes_, keep_, folder_, import);
}

Result<ir::Graph> Model::Impl::graph() {
  {
    const std::lock_guard lock(mutex_);
    if (first_) {
      Result<ir::Graph> taken = std::move(*first_);
      first_.reset();
      return taken;
    }
  }
  return make_graph({});
}

Result<ir::Graph> Model::Impl::graph_for(std::span<const Value> inputs) const { return make_graph(inputs); }

Result<Model> Model::load(const std::string& path, LoadOptions options) {
  TESSERA_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  Result<std::shared_ptr<Impl>> impl = Impl::open(file->bytes(), file, path, folder_of(path), std::move(options));
  if (!impl) return tl::unexpected<Error>(std::move(impl.error()).within("loading '" + path + "'"));
  return Model(std::move(*impl));
}

Result<Model> Model::from_memory(std::span<const std::byte> bytes, std::string folder, LoadOptions options,
                                 std::shared_ptr<const void> keep) {
  TESSERA_ASSIGN(std::shared_ptr<Impl> impl,
                 Impl::open(bytes, std::move(keep), "", std::move(folder), std::move(options)));
  return Model(std::move(impl));
}

const std::vector<ValueInfo>& Model::inputs() const { return impl_->inputs(); }
const std::vector<ValueInfo>& Model::outputs() const { return impl_->outputs(); }
const std::string& Model::path() const { return impl_->path(); }

namespace engine {

ValueInfo describe(ir::TypeRef type, std::string name) {
  ValueInfo info;
  info.name = std::move(name);
  info.type = ir::to_string(*type);
  if (type->kind == ir::Kind::sequence || type->kind == ir::Kind::optional) {
    info.kind = type->kind == ir::Kind::sequence ? ValueInfo::Kind::sequence : ValueInfo::Kind::optional;
    info.ranked = false;
    while (type->element != nullptr) type = type->element;
    info.dtype = type->dtype;
    return info;
  }
  info.dtype = type->dtype;
  info.ranked = type->ranked;
  for (const Dim& size : type->shape) {
    info.shape.push_back(to_string(size));
    info.sizes.push_back(size.is_const() ? size.value() : -1);
  }
  return info;
}

}  // namespace engine
}  // namespace tessera
