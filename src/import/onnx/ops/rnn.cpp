// RNN, GRU and LSTM: the input's products for all steps at once, then a scan over the steps.
// Letters: T steps, B batch, I input size, H hidden size, G gates, D directions.
#include <algorithm>
#include <functional>
#include <string>

#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {
namespace {

using Activation = std::function<X(X)>;

// The next of the alphas (or betas): activations take theirs in order, each only what it uses.
class Coefficients {
 public:
  explicit Coefficients(std::vector<double> values) : values_(std::move(values)) {}
  double next(double otherwise) { return at_ < values_.size() ? values_[at_++] : otherwise; }

 private:
  std::vector<double> values_;
  size_t at_ = 0;
};

Result<Activation> activation(NodeImport& n, std::string_view name, Coefficients& alphas, Coefficients& betas) {
  std::string lower;
  for (char c : name) lower.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  auto op = [](const ir::OpDef& op) { return [&op](X x) { return x.builder->add1(op, {x}); }; };
  auto negative_part = [](X x) { return min(x, like(x, 0)); };
  auto positive_part = [](X x) { return max(x, like(x, 0)); };
  if (lower == "sigmoid") return Activation(op(ops::sigmoid_op));
  if (lower == "tanh") return Activation(op(ops::tanh_op));
  if (lower == "relu") return Activation(op(ops::relu_op));
  if (lower == "softplus") return Activation(op(ops::softplus_op));
  if (lower == "softsign") return Activation([](X x) { return x / (1.0 + abs(x)); });
  if (lower == "affine") {
    double a = alphas.next(1), b = betas.next(0);
    return Activation([=](X x) { return x * a + b; });
  }
  if (lower == "scaledtanh") {
    double a = alphas.next(1), b = betas.next(1);
    return Activation([=](X x) { return tanh(x * b) * a; });
  }
  if (lower == "hardsigmoid") {
    double a = alphas.next(0.2), b = betas.next(0.5);
    return Activation([=](X x) { return x.builder->add1(ops::hard_sigmoid_op, {x}, {a, b}); });
  }
  if (lower == "leakyrelu") {
    double a = alphas.next(0.01);
    return Activation([=](X x) { return positive_part(x) + negative_part(x) * a; });
  }
  if (lower == "elu") {
    double a = alphas.next(1);
    return Activation([=](X x) { return positive_part(x) + (exp(negative_part(x)) - 1.0) * a; });
  }
  if (lower == "thresholdedrelu") {
    double a = alphas.next(1);
    return Activation([=](X x) { return select(less(like(x, a), x), x, like(x, 0)); });
  }
  return n.fail(Code::attribute_invalid, "activation '{}' is unknown", name);
}

// What one direction computes with. Values live outside the scan.
struct Direction {
  bool reverse = false;
  X w, r;            // [G H, I], [G H, H]
  X bias_w, bias_r;  // [G H] or absent
  X peepholes;       // [3 H] or absent
  Xs initial;        // h, and c of LSTM: [B, H]
  std::vector<Activation> f;
};

// One step inside the scan: values live there.
struct Step {
  X x;     // [B, G H]: the input's part of the gates
  X h, c;  // [B, H]
  X r, bias_r, peepholes;
  Dim hidden;
  const std::vector<Activation>& f;
  std::function<X(X)> clip;

  X part(X gates, int g) const { return slice(gates, -1, g * hidden, hidden); }
  X part_of_rows(X rows, int g) const { return slice(rows, 0, g * hidden, hidden); }
};

using StepFn = Xs (*)(NodeImport& n, const Step& s);

// What the three operators differ in.
struct Cell {
  int gates;
  int activations;
  std::vector<std::string_view> defaults;
  StepFn step;
  bool cell_state;
};

Xs rnn_step(NodeImport&, const Step& s) { return {s.f[0](s.clip(s.x + dot(s.h, s.r)))}; }

// Gates z, r, h.
Xs gru_step(NodeImport& n, const Step& s) {
  bool after = n.integer("linear_before_reset", 0) != 0;
  X recurrent = dot(s.h, slice(s.r, 0, 0, 2 * s.hidden));  // z and r
  X z = s.f[0](s.clip(s.part(s.x, 0) + s.part(recurrent, 0)));
  X r = s.f[0](s.clip(s.part(s.x, 1) + s.part(recurrent, 1)));
  X rows = s.part_of_rows(s.r, 2), candidate;
  if (after) {
    X inner = dot(s.h, rows);
    if (s.bias_r) inner = inner + s.part_of_rows(s.bias_r, 2);
    candidate = r * inner;
  } else {
    candidate = dot(r * s.h, rows);
  }
  X h = s.f[1](s.clip(s.part(s.x, 2) + candidate));
  return {(1.0 - z) * h + z * s.h};
}

// Gates i, o, f, c; peepholes i, o, f.
Xs lstm_step(NodeImport& n, const Step& s) {
  X gates = s.x + dot(s.h, s.r);
  auto gate = [&](int g, X cell, int peephole) {
    X x = s.part(gates, g);
    if (s.peepholes) x = x + cell * s.part_of_rows(s.peepholes, peephole);
    return s.f[0](s.clip(x));
  };
  X input = gate(0, s.c, 0);
  X forget = n.integer("input_forget", 0) != 0 ? 1.0 - input : gate(2, s.c, 2);
  X c = forget * s.c + input * s.f[1](s.clip(s.part(gates, 3)));
  X h = gate(1, c, 1) * s.f[2](c);
  return {h, c};
}

// Runs one direction over x [T, B, I]; gives y [T, B, H] and the last states.
Result<Xs> run(NodeImport& n, const Cell& cell, const Direction& d, X x, X lengths) {
  Dim steps = x.dim(0), batch = x.dim(1), hidden = d.r.dim(1);
  bool split_bias = d.bias_r && cell.gates == 3 && n.integer("linear_before_reset", 0) != 0;
  X gates = dot(x, d.w);
  if (d.bias_w) gates = gates + d.bias_w;
  if (split_bias) {  // the last gate adds its part inside
    Dim outer = 2 * hidden;
    gates = gates + pad(slice(d.bias_r, 0, 0, outer), {Dim(0)}, {hidden});
  } else if (d.bias_r) {
    gates = gates + d.bias_r;
  }
  TESSERA_TRY(n.b.status());
  n.b.require_equal(gates.dim(2), cell.gates * hidden);
  Xs sliced = {gates};
  if (lengths) sliced.push_back(iota(n.b, {steps}, 0, DType::i64));
  if (d.reverse)
    for (X& s : sliced) s = slice(s, 0, steps - 1, steps, -1);
  TESSERA_TRY(n.b.status());

  ir::Graph region(n.b.graph().shared_context());
  region.name = "step";
  Builder inner(region);
  inner.set_location(n.b.location());
  Xs operands = d.initial;
  Xs before;
  for (X state : d.initial) before.push_back(inner.input(state.type(), ""));
  auto enter_slice = [&](X outer) {
    Shape shape(outer.shape().begin() + 1, outer.shape().end());
    operands.push_back(outer);
    return inner.input(inner.context().tensor(outer.dtype(), std::move(shape)), "");
  };
  auto enter = [&](X outer) {
    if (!outer) return outer;
    operands.push_back(outer);
    return inner.input(outer.type(), "");
  };
  X gates_now = enter_slice(sliced[0]), step = lengths ? enter_slice(sliced[1]) : X{};
  double limit = n.real("clip", 0);
  Step s{gates_now,
         before[0],
         before.size() > 1 ? before[1] : X{},
         enter(d.r),
         split_bias ? enter(d.bias_r) : X{},
         enter(d.peepholes),
         hidden,
         d.f,
         [limit](X v) { return limit > 0 ? max(min(v, like(v, limit)), like(v, -limit)) : v; }};
  X ends = enter(lengths);
  Xs after = cell.step(n, s);
  X y = after[0];
  if (lengths) {                // past an example's end states stay and results are 0
    X live = less(step, ends);  // [B, 1]
    for (size_t i = 0; i < after.size(); ++i) after[i] = select(live, after[i], before[i]);
    y = select(live, y, like(y, 0));
  }
  TESSERA_TRY(inner.status());
  for (X state : after) region.outputs.push_back(state.id);
  region.outputs.push_back(y.id);
  region.output_names.assign(region.outputs.size(), 0);
  std::vector<ir::Graph> regions;
  regions.push_back(std::move(region));
  Xs results = n.b.add(ops::scan_op, operands,
                       {static_cast<int64_t>(before.size()), static_cast<int64_t>(sliced.size())}, std::move(regions));
  TESSERA_TRY(n.b.status());
  X sequence = results[before.size()];
  if (d.reverse) sequence = slice(sequence, 0, steps - 1, steps, -1);
  Xs outputs = {sequence};
  outputs.insert(outputs.end(), results.begin(), results.begin() + static_cast<ptrdiff_t>(before.size()));
  TESSERA_TRY(n.b.status());
  n.b.require_equal(batch, outputs[1].dim(0));
  return outputs;
}

Status import_recurrent(NodeImport& n, const Cell& cell) {
  X x = n.need(0), w = n.need(1), r = n.need(2), bias = n.in(3), lengths = n.in(4);
  Xs initial = {n.in(5)};
  if (cell.cell_state) initial.push_back(n.in(6));
  X peepholes = cell.cell_state ? n.in(7) : X{};
  TESSERA_TRY(n.b.status());
  for (X given : {x, w, r})
    if (given.rank() != 3)
      return n.fail(Code::rank_mismatch, "X, W and R must have 3 axes but one has {}", given.rank());
  for (X given : {bias, peepholes})
    if (given && given.rank() != 2)
      return n.fail(Code::rank_mismatch, "B and P must have 2 axes but one has {}", given.rank());
  for (X given : initial)
    if (given && given.rank() != 3)
      return n.fail(Code::rank_mismatch, "an initial state has {} axes but must have 3", given.rank());
  std::string_view direction = n.text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return n.fail(Code::attribute_invalid, "the direction is '{}'", direction);
  int directions = direction == "bidirectional" ? 2 : 1;
  n.b.require_equal(w.dim(0), directions);
  n.b.require_equal(r.dim(0), directions);
  Dim hidden = r.dim(2);
  if (n.has_attribute("hidden_size")) n.b.require_equal(n.integer("hidden_size", 0), hidden);

  // Half precision accumulates in single.
  DType type = x.dtype(), inner_type = type == DType::f64 ? type : DType::f32;
  bool batch_first = n.integer("layout", 0) != 0;
  if (batch_first) {
    x = swap_axes(x, 0, 1);
    for (X& state : initial) state = swap_axes(state, 0, 1);
  }
  x = cast(x, inner_type);
  TESSERA_TRY(n.b.status());
  Dim batch = x.dim(1);
  if (lengths) lengths = reshape(cast(lengths, DType::i64), {batch, 1});

  std::vector<std::string_view> names = n.texts("activations");
  size_t wanted = static_cast<size_t>(cell.activations * directions);
  if (names.empty())
    for (int d = 0; d < directions; ++d) names.insert(names.end(), cell.defaults.begin(), cell.defaults.end());
  if (names.size() != wanted)
    return n.fail(Code::attribute_invalid, "{} activations are given but {} are needed", names.size(), wanted);
  Coefficients alphas(n.reals("activation_alpha")), betas(n.reals("activation_beta"));

  Xs sequences;
  std::vector<Xs> last(initial.size());
  for (int i = 0; i < directions; ++i) {
    auto mine = [&](X all) { return all ? cast(squeeze(slice(all, 0, i, 1), {0}), inner_type) : all; };
    Direction d;
    d.reverse = direction == "reverse" || i == 1;
    d.w = mine(w);
    d.r = mine(r);
    if (X both = mine(bias)) {
      Dim half = cell.gates * hidden;
      d.bias_w = slice(both, 0, 0, half);
      d.bias_r = slice(both, 0, half, half);
    }
    d.peepholes = mine(peepholes);
    for (X state : initial)
      d.initial.push_back(state ? mine(state) : broadcast(n.b.scalar(inner_type, 0), {batch, hidden}));
    for (int k = 0; k < cell.activations; ++k) {
      TESSERA_ASSIGN(Activation f, activation(n, names[static_cast<size_t>(i * cell.activations + k)], alphas, betas));
      d.f.push_back(std::move(f));
    }
    TESSERA_TRY(n.b.status());
    TESSERA_ASSIGN(Xs outputs, run(n, cell, d, x, lengths));
    sequences.push_back(unsqueeze(outputs[0], {1}));  // [T, 1, B, H]
    for (size_t k = 0; k < last.size(); ++k) last[k].push_back(unsqueeze(outputs[k + 1], {0}));
  }
  X y = cast(concat(sequences, 1), type);
  n.out(0, batch_first ? transpose(y, {2, 0, 1, 3}) : y);
  for (size_t k = 0; k < last.size(); ++k) {
    X state = cast(concat(last[k], 0), type);  // [D, B, H]
    n.out(static_cast<int>(k) + 1, batch_first ? swap_axes(state, 0, 1) : state);
  }
  return {};
}

}  // namespace

Status import_rnn(NodeImport& n) { return import_recurrent(n, {1, 1, {"Tanh"}, rnn_step, false}); }
Status import_gru(NodeImport& n) { return import_recurrent(n, {3, 2, {"Sigmoid", "Tanh"}, gru_step, false}); }
Status import_lstm(NodeImport& n) { return import_recurrent(n, {4, 3, {"Sigmoid", "Tanh", "Tanh"}, lstm_step, true}); }

}  // namespace tessera::onnx
