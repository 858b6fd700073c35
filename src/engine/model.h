// What stands behind tessera::Model: the source of a model, from which graphs are made.
#pragma once

#include <mutex>
#include <optional>

#include "ir/graph.h"
#include "tessera/session.h"

namespace tessera {

// Graphs belong to one session each: compiling and running make new sizes in a graph's context, which is not for
// several threads. Making one again from the mapped file is cheap.
class Model::Impl {
 public:
  enum class Format : uint8_t { onnx, text };

  // `keep` keeps `bytes` alive.
  static Result<std::shared_ptr<Impl>> open(std::span<const std::byte> bytes, std::shared_ptr<const void> keep,
                                            std::string path, std::string folder, LoadOptions options);

  // A graph for any sizes.
  Result<ir::Graph> graph();
  // A graph for exactly these inputs, in the model's order: every named size that they tell is a constant in it.
  Result<ir::Graph> graph_for(std::span<const Value> inputs) const;

  const std::vector<ValueInfo>& inputs() const { return inputs_; }
  const std::vector<ValueInfo>& outputs() const { return outputs_; }
  const std::string& path() const { return path_; }
  Format format() const { return format_; }

 private:
  // `inputs` empty: for any sizes.
  Result<ir::Graph> make_graph(std::span<const Value> inputs) const;

  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> keep_;
  std::string path_;
  std::string folder_;
  Format format_ = Format::onnx;
  LoadOptions options_;
  std::vector<ValueInfo> inputs_, outputs_;
  std::mutex mutex_;
  std::optional<ir::Graph> first_;  // the graph that open() made, until someone takes it
};

}  // namespace tessera

namespace tessera::engine {

ValueInfo describe(ir::TypeRef type, std::string name);

}  // namespace tessera::engine
