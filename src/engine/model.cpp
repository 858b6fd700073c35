#include "engine/model.h"

#include <algorithm>
#include <set>

#include "base/memory.h"
#include "base/result.h"
#include "base/strings.h"
#include "engine/language.h"
#include "import/onnx/import.h"
#include "import/onnx/proto.h"
#include "ir/graph_file.h"
#include "ops/ops.h"
#include "plan/artifact.h"
#include "tensor/scalar.h"

namespace tessera {
namespace {

using Format = Model::Impl::Format;

constexpr int64_t kMostDeciding = 64;  // elements: axes and shapes have at most a few, token ids usually more

// The fields of ONNX's ModelProto, of which a file has one first: a tag is field << 3 | wire type.
bool begins_as_onnx(std::span<const std::byte> bytes) {
  const auto first = static_cast<unsigned>(bytes.front());
  const unsigned field = first >> 3, wire = first & 7;
  const bool number = field == 1 || field == 5, text = field >= 2 && field <= 4, message = field >= 6 && field <= 15;
  return (number && wire == 0) || ((text || message) && wire == 2);
}

// The grammar's first token, behind blanks and comments.
bool begins_as_text(std::span<const std::byte> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (!text.starts_with("//")) return text.starts_with("graph");
    text.remove_prefix(std::min(text.find('\n'), text.size()));
  }
}

Result<Format> format_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) return fail(Code::unknown_format, "the file is empty");
  if (plan::is_artifact(bytes)) return Format::artifact;
  if (begins_as_text(bytes)) return Format::text;
  if (begins_as_onnx(bytes)) return Format::onnx;
  return fail(Code::unknown_format, "the file begins with byte 0x{:02x}, as no kind of model does",
              static_cast<unsigned>(bytes.front()));
}

// What the sizes that only a run tells are called.
std::vector<std::string> open_sizes(const std::vector<ValueInfo>& inputs) {
  std::set<std::string> names;
  for (const ValueInfo& info : inputs)
    for (size_t i = 0; i < info.sizes.size(); ++i)
      if (info.sizes[i] < 0) names.insert(info.shape[i]);
  return {names.begin(), names.end()};
}

// What is known of sizes, where no graph is at hand that it could become a part of.
Status apply_dims(const std::vector<DimRange>& dims, std::vector<ValueInfo>& inputs) {
  const std::vector<std::string> names = open_sizes(inputs);
  for (const DimRange& range : dims) {
    if (std::find(names.begin(), names.end(), range.name) == names.end())
      return tl::unexpected<Error>(dim_unknown(range.name, names));
    if (range.lo != range.hi) continue;
    for (ValueInfo& info : inputs)
      for (size_t i = 0; i < info.sizes.size(); ++i)
        if (info.sizes[i] < 0 && info.shape[i] == range.name) info.sizes[i] = range.lo;
  }
  return {};
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Result<std::shared_ptr<Model::Impl>> Model::Impl::open(std::span<const std::byte> bytes,
                                                       std::shared_ptr<const void> keep,
                                                       std::shared_ptr<const MappedFile> file, std::string folder,
                                                       LoadOptions options) {
  TESSERA_ASSIGN(const Format format, format_of(bytes));
  for (const DimRange& range : options.dims)
    if (range.lo < 0 || range.lo > range.hi)
      return fail(Code::shape_invalid, "the range of '{}' is [{}, {}], which no size has", range.name, range.lo,
                  range.hi);
  auto impl = std::make_shared<Impl>();
  impl->bytes_ = bytes;
  impl->keep_ = std::move(keep);
  if (file != nullptr) impl->path_ = file->path();
  impl->file_ = std::move(file);
  impl->folder_ = std::move(folder);
  impl->format_ = format;
  impl->options_ = std::move(options);
  TESSERA_TRY(format == Format::onnx   ? impl->read_onnx()
              : format == Format::text ? impl->read_text()
                                       : impl->read_artifact());
  return impl;
}

Result<std::shared_ptr<Model::Impl>> Model::Impl::open_language(const std::string& path, LoadOptions options) {
  auto impl = std::make_shared<Impl>();
  TESSERA_ASSIGN(impl->source_, engine::open_language_model(path));
  impl->path_ = path;
  impl->format_ = Format::language;
  impl->options_ = std::move(options);
  TESSERA_TRY(impl->read_text());
  return impl;
}

Status Model::Impl::read_onnx() {
  Result<ir::Graph> graph = make_graph({}, false);
  if (graph) {
    inputs_ = engine::describe_inputs(*graph);
    outputs_ = engine::describe_outputs(*graph);
    first_ = std::move(*graph);
    return {};
  }
  if (graph.error().code != Code::value_unknown) return tl::unexpected<Error>(std::move(graph).error());
  // The inputs of each run tell what is not known now.
  TESSERA_ASSIGN(const onnx::ModelProto model, onnx::parse_model(onnx::Bytes(bytes_)));
  TESSERA_ASSIGN(inputs_, engine::declared_inputs(model));
  TESSERA_TRY(apply_dims(options_.dims, inputs_));
  TESSERA_ASSIGN(outputs_, engine::declared_outputs(model));
  return {};
}

Status Model::Impl::read_text() {
  TESSERA_ASSIGN(first_, make_graph({}, false));
  inputs_ = engine::describe_inputs(*first_);
  outputs_ = engine::describe_outputs(*first_);
  return {};
}

Status Model::Impl::read_artifact() {
  TESSERA_ASSIGN(plan::Artifact artifact, plan::read_artifact(bytes_, keep_));
  plan_ = std::move(artifact.plan);
  inputs_ = engine::describe_inputs(*plan_);
  outputs_ = engine::describe_outputs(*plan_);
  return apply_dims(options_.dims, inputs_);
}

bool Model::Impl::may_decide(const Value& input) {
  const Tensor* tensor = input.tensor();
  return tensor != nullptr && (is_int(tensor->dtype()) || tensor->dtype() == DType::boolean) && tensor->rank() <= 1 &&
         tensor->count() <= kMostDeciding;
}

// To the sizes that the user told.
Result<ir::Graph> Model::Impl::narrowed(ir::Graph graph) const {
  for (const DimRange& range : options_.dims) {
    const std::optional<Dim> symbol = graph.dims().find(range.name);
    if (!symbol) return tl::unexpected<Error>(dim_unknown(range.name, open_sizes(engine::describe_inputs(graph))));
    TESSERA_TRY(graph.dims().narrow(*symbol, {range.lo, range.hi}));
  }
  TESSERA_TRY(graph.compact());
  return graph;
}

Result<ir::Graph> Model::Impl::make_graph(std::span<const Value> inputs, bool values) const {
  if (format_ == Format::text) {
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    TESSERA_ASSIGN(ir::Graph graph,
                   path_.empty() ? ir::parse_graph(text, ops::find_op) : ir::load_graph(path_, ops::find_op));
    return narrowed(std::move(graph));
  }
  if (format_ == Format::language) {
    TESSERA_ASSIGN(ir::Graph graph, transformer::build(source_->config, *source_->weights, {}));
    return narrowed(std::move(graph));
  }
  if (format_ == Format::artifact)
    return fail(Code::unsupported_feature,
                "an artifact holds a plan and no graph: use the model that it "
                "was compiled from");
  onnx::ImportOptions import;
  for (const DimRange& range : options_.dims) import.dims[range.name] = {range.lo, range.hi};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor* tensor = inputs[i].tensor();
    if (tensor == nullptr) continue;
    import.input_shapes[inputs_[i].name] = tensor->shape();
    if (!values || !may_decide(inputs[i])) continue;
    std::vector<int64_t>& elements = import.input_values[inputs_[i].name];
    for (int64_t k = 0; k < tensor->count(); ++k)
      elements.push_back(static_cast<int64_t>(decode_int(tensor->dtype(), tensor->data(), k)));
  }
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
  return make_graph({}, false);
}

Result<ir::Graph> Model::Impl::graph_for(std::span<const Value> inputs, bool values) const {
  return make_graph(inputs, values);
}

Result<Model> Model::load(const std::string& path, LoadOptions options) {
  if (engine::is_language_model(path)) {
    TESSERA_ASSIGN(std::shared_ptr<Impl> language, Impl::open_language(path, std::move(options)));
    return Model(std::move(language));
  }
  TESSERA_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  Result<std::shared_ptr<Impl>> impl =
      without_throwing([&] { return Impl::open(file->bytes(), file, file, folder_of(path), std::move(options)); });
  if (!impl) return tl::unexpected<Error>(std::move(impl.error()).within("loading '" + path + "'"));
  return Model(std::move(*impl));
}

Result<Model> Model::from_memory(std::span<const std::byte> bytes, std::string folder, LoadOptions options,
                                 std::shared_ptr<const void> keep) {
  TESSERA_ASSIGN(std::shared_ptr<Impl> impl, without_throwing([&] {
                   return Impl::open(bytes, std::move(keep), nullptr, std::move(folder), std::move(options));
                 }));
  return Model(std::move(impl));
}

const std::vector<ValueInfo>& Model::inputs() const { return impl_->inputs(); }
const std::vector<ValueInfo>& Model::outputs() const { return impl_->outputs(); }
const std::string& Model::path() const { return impl_->path(); }

}  // namespace tessera
