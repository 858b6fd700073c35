// What stands behind tessera::Model: the source of a model, from which graphs are made.
#pragma once

#include <mutex>
#include <optional>

#include "base/file.h"
#include "import/transformer/source.h"
#include "ir/graph.h"
#include "plan/plan.h"
#include "tessera/session.h"

namespace tessera {

// Graphs belong to one session each: compiling and running make new sizes in a graph's context, which is not for
// several threads. Making one again from the mapped file is cheap.
class Model::Impl {
 public:
  enum class Format : uint8_t { onnx, text, artifact, language };

  // `keep` keeps `bytes` alive; `file` is the same where they are a mapped file's, else null.
  static Result<std::shared_ptr<Impl>> open(std::span<const std::byte> bytes, std::shared_ptr<const void> keep,
                                            std::shared_ptr<const MappedFile> file, std::string folder,
                                            LoadOptions options);

  // A Hugging Face folder or a GGUF file: its graph takes the inputs that import/transformer/build.h describes.
  static Result<std::shared_ptr<Impl>> open_language(const std::string& path, LoadOptions options);

  // A graph for any sizes. E0317 when the model's form depends on values of its inputs.
  Result<ir::Graph> graph();
  // A graph for exactly these inputs, in the model's order: every size that they tell is a constant in it; with
  // `values` also the elements of those that may be axes or sizes.
  Result<ir::Graph> graph_for(std::span<const Value> inputs, bool values) const;
  // Whether an input may decide the form of a model by its elements: short lists of integers.
  static bool may_decide(const Value& input);
  // The plan of an artifact; null for other formats.
  const std::shared_ptr<const plan::Plan>& plan() const { return plan_; }

  const std::vector<ValueInfo>& inputs() const { return inputs_; }
  const std::vector<ValueInfo>& outputs() const { return outputs_; }
  // Empty for models from memory.
  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::vector<DimRange>& dims() const { return options_.dims; }
  Format format() const { return format_; }
  const std::optional<transformer::Source>& source() const { return source_; }

 private:
  Status read_onnx();
  Status read_text();
  Status read_artifact();
  Result<ir::Graph> narrowed(ir::Graph graph) const;
  // `inputs` empty: for any sizes.
  Result<ir::Graph> make_graph(std::span<const Value> inputs, bool values) const;

  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> keep_;
  std::shared_ptr<const MappedFile> file_;
  std::string path_;
  std::optional<transformer::Source> source_;  // of language models
  std::string folder_;
  Format format_ = Format::onnx;
  LoadOptions options_;
  std::vector<ValueInfo> inputs_, outputs_;
  std::shared_ptr<const plan::Plan> plan_;
  std::mutex mutex_;
  std::optional<ir::Graph> first_;  // the graph that open() made, until someone takes it; guarded by mutex_
};

}  // namespace tessera

namespace tessera::onnx {
struct ModelProto;
}

namespace tessera::engine {

ValueInfo describe(ir::TypeRef type, std::string name);
std::vector<ValueInfo> describe_inputs(const ir::Graph& graph);
std::vector<ValueInfo> describe_outputs(const ir::Graph& graph);
std::vector<ValueInfo> describe_inputs(const plan::Plan& plan);
std::vector<ValueInfo> describe_outputs(const plan::Plan& plan);
// Of an ONNX model that is not (or cannot be) imported: as the file declares them.
Result<std::vector<ValueInfo>> declared_inputs(const onnx::ModelProto& model);
Result<std::vector<ValueInfo>> declared_outputs(const onnx::ModelProto& model);

}  // namespace tessera::engine
