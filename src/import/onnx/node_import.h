// What an operator's import function sees: the node, its inputs as X, and its attributes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "import/onnx/proto.h"
#include "ops/math.h"

namespace tessera::onnx {

// The formulas' types and functions, so that import functions read as mathematics.
using ir::AttrValue;
using ir::Axes;
using ir::Builder;
using ir::Opt;
using ir::X;
using ir::Xs;

class Importer;
class Scope;

// Adds one ONNX node to the graph. Errors of formulas are sticky in the builder, so only facts about the node itself
// need checks.
class NodeImport {
 public:
  NodeImport(Importer& importer, Scope& scope, Builder& builder, const NodeProto& node, Xs given, int64_t opset)
      : importer(importer), scope(scope), b(builder), node(node), given(std::move(given)), opset(opset) {}

  Importer& importer;
  Scope& scope;
  Builder& b;
  const NodeProto& node;
  const Xs given;  // the node's inputs; absent where it names none
  int64_t opset;   // the version of the node's operator set that the model asks for

  // Inputs. in() refuses values of unknown rank and what is no tensor (sticky E0402), any() takes everything; both give
  // an absent X for an absent input. need() makes absence an error (E0301).
  int inputs() const { return static_cast<int>(node.input.size()); }
  int outputs() const { return static_cast<int>(node.output.size()); }
  bool has(int i) const;
  bool wants(int i) const;  // whether output i is named
  X any(int i);
  X in(int i);
  X need(int i);
  Xs all();  // every input, by need()
  // The elements of an integer input that are known without a run: as sizes, or as constants only.
  const Shape* sizes(int i);
  std::optional<std::vector<int64_t>> ints(int i);
  // A constant input of any numeric type as doubles; nullopt when it is absent or not constant.
  std::optional<std::vector<double>> reals(int i);

  // Attributes. A value of another type than asked for is E0403, sticky.
  const AttributeProto* attribute(std::string_view name);
  bool has_attribute(std::string_view name) { return attribute(name) != nullptr; }
  int64_t integer(std::string_view name, int64_t otherwise);
  double real(std::string_view name, double otherwise);
  std::string_view text(std::string_view name, std::string_view otherwise);
  std::vector<int64_t> integers(std::string_view name, std::vector<int64_t> otherwise = {});
  std::vector<double> reals(std::string_view name, std::vector<double> otherwise = {});
  std::vector<std::string_view> texts(std::string_view name);
  const GraphProto* graph(std::string_view name);
  // An attribute that holds a TensorProto.DataType; otherwise `otherwise`.
  DType dtype(std::string_view name, DType otherwise);
  Result<Tensor> tensor(std::string_view name);
  // The axis attribute in [0, rank); E0314.
  Result<int> axis(std::string_view name, int64_t otherwise, int rank);
  Result<int> normal_axis(int64_t axis, int rank);

  // Results.
  void out(X x) { out(0, x); }
  void out(int i, X x);

  // A coded error that needs no names: the importer adds the node and the file.
  template <class... Args>
  tl::unexpected<Error> fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
    return tessera::fail(code, format, std::forward<Args>(args)...);
  }

  // E0317: input i decides the structure of the graph, but only the run tells its elements.
  tl::unexpected<Error> value_unknown(int i);

 private:
  void sticky(tl::unexpected<Error> error);
};

using ImportFn = Status (*)(NodeImport&);

// One line of onnx_ops.def: from this version of the operator set on, until the next line of the same operator.
struct OnnxOp {
  std::string_view domain;
  std::string_view op_type;
  int64_t since;
  ImportFn function;
};
// The rule for the operator in this version; nullptr when there is none.
const OnnxOp* find_onnx_op(std::string_view domain, std::string_view op_type, int64_t version);
std::span<const OnnxOp> all_onnx_ops();

}  // namespace tessera::onnx
