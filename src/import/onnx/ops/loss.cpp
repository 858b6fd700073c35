// NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss and NonMaxSuppression.
#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {
namespace {

Axes all_axes(X x) {
  Axes axes;
  for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  return axes;
}
X total(X x) { return reshape(sum(x, all_axes(x)), {}); }

// -weight[target] log_prob[target], element by element or combined. Ignored targets weigh nothing, and what they point
// to is not read.
Result<X> likelihood_loss(NodeImport& n, X log_prob, X target, X weight) {
  if (log_prob.rank() < 2 || target.rank() != log_prob.rank() - 1)
    return n.fail(Code::rank_mismatch, "the scores have {} axes and the targets {}, which must be one less, at least 1",
                  log_prob.rank(), target.rank());
  X ignored;
  if (n.has_attribute("ignore_index")) {
    ignored = equal(target, n.b.integer(n.integer("ignore_index", 0), target.dtype()));
    target = select(ignored, n.b.integer(0, target.dtype()), target);
  }
  X loss = n.b.add1(ops::gather_elements_op, {log_prob, unsqueeze(target, {1})}, {int64_t{1}});
  loss = -squeeze(loss, {1});
  if (weight) {
    weight = gather(weight, target, 0);
    loss = loss * weight;
  }
  if (ignored) {
    loss = select(ignored, like(loss, 0), loss);
    if (!weight) weight = broadcast(like(log_prob, 1), target.shape());
    weight = select(ignored, like(weight, 0), weight);
  }
  TESSERA_TRY(n.b.status());
  std::string_view reduction = n.text("reduction", "mean");
  if (reduction == "none") return loss;
  if (reduction == "sum") return total(loss);
  if (reduction != "mean") return n.fail(Code::attribute_invalid, "the reduction is '{}'", reduction);
  if (weight) return total(loss) / total(weight);
  return reshape(mean(loss, all_axes(loss)), {});
}

// The only element of an input that may be [] or [1].
X scalar_in(NodeImport& n, int i) {
  X x = n.in(i);
  return x && x.rank() > 0 ? reshape(x, {}) : x;
}

}  // namespace

Status import_negative_log_likelihood_loss(NodeImport& n) {
  X x = n.need(0), target = n.need(1), weight = n.in(2);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(X loss, likelihood_loss(n, x, target, weight));
  n.out(loss);
  return {};
}

Status import_softmax_cross_entropy_loss(NodeImport& n) {
  X scores = n.need(0), labels = n.need(1), weight = n.in(2);
  TESSERA_TRY(n.b.status());
  if (scores.rank() < 2) return n.fail(Code::rank_mismatch, "the scores have {} axes, not at least 2", scores.rank());
  X log_prob = n.b.add1(ops::log_softmax_op, {scores}, {int64_t{1}});
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(X loss, likelihood_loss(n, log_prob, labels, weight));
  n.out(0, loss);
  n.out(1, log_prob);
  return {};
}

Status import_non_max_suppression(NodeImport& n) {
  X boxes = n.need(0), scores = n.need(1), most = scalar_in(n, 2), overlap = scalar_in(n, 3), least = scalar_in(n, 4);
  TESSERA_TRY(n.b.status());
  if (!most) most = n.b.integer(0);
  if (!overlap) overlap = n.b.scalar(DType::f32, 0);
  n.out(n.b.add1(ops::non_max_suppression_op, {boxes, scores, cast(most, DType::i64), overlap, least},
                 {n.integer("center_point_box", 0)}));
  return {};
}

}  // namespace tessera::onnx
