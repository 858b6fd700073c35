#include "import/transformer/build.h"

#include <cmath>

#include "import/transformer/parts.h"

namespace tessera::transformer {
namespace {

// Keys or values: [pages, G, rows, D] and, in i8, [pages, G, rows, 1].
struct Kept {
  X rows, scale;
};

// A layer of either kind, and what all layers share.
class ModelBuilder {
 public:
  ModelBuilder(const Config& config, const Weights& weights, const BuildOptions& options)
      : c_(config), o_(options), graph_(std::make_shared<ir::Context>()), b_(graph_), parts_(b_, config, weights) {
    graph_.name = config.architecture;
  }

  Result<ir::Graph> build() {
    TESSERA_TRY(b_.dims().narrow(c_.decoder ? size("sequences") : size("bounds"), {c_.decoder ? 1 : 2, INT64_MAX}));
    declare_inputs();
    X x = embed();
    for (int layer = 0; layer < static_cast<int>(c_.layers.size()) && b_.ok(); ++layer) x = add_layer(x, layer);
    if (c_.decoder)
      finish_decoder(x);
    else
      finish_encoder(x);
    TESSERA_TRY(b_.status());
    TESSERA_TRY(graph_.compact());
    return std::move(graph_);
  }

 private:
  X input(std::string_view name, DType type, Shape shape) {
    return b_.input(graph_.context().tensor(type, std::move(shape)), name);
  }
  Dim size(std::string_view name) { return b_.dims().symbol(name); }

  void declare_inputs() {
    const Dim tokens = size("tokens"), sequences = c_.decoder ? size("sequences") : size("bounds") - 1;
    ids_ = input("ids", DType::i64, {tokens});
    positions_ = input("positions", DType::i64, {tokens});
    starts_ = input("starts", DType::i64, {sequences + 1});
    if (c_.token_types > 0) types_ = input("types", DType::i64, {tokens});
    if (c_.decoder) {
      lengths_ = input("lengths", DType::i64, {sequences});
      table_ = input("table", DType::i64, {sequences, size("pages")});
      slots_ = input("slots", DType::i64, {tokens});
      picked_ = input("picked", DType::i64, {size("rows")});
      for (size_t layer = 0; layer < c_.layers.size(); ++layer)
        for (std::string_view kind : {"keys", "values"}) {
          const auto state = [&](DType type, int64_t width, std::string_view what) {
            return b_.input(
                graph_.context().type({ir::Kind::state, type, true, {size("cache"), c_.groups, kPageRows, width}}),
                fmt::format("{}.{}{}", kind, layer, what));
          };
          states_.push_back({state(o_.cache, c_.head_width, ""), {&b_, ir::kNoValue}});
          if (o_.cache == DType::i8) states_.back().scale = state(DType::f32, 1, ".scale");
        }
    }
    for (const Rope& rope : c_.ropes) angles_.push_back(angles(rope));
    if (c_.bias_buckets > 0) bias_ = parts_.distance_bias();
  }

  // [tokens, 1]: each sequence by its own length, so that it does not depend on who shares the step.
  X own_length() {
    X row_number = ir::iota(b_, {ids_.dim(0), 1}, 0, DType::i64);
    X ends = slice(starts_, 0, 1, starts_.dim(0) - 1);
    X length = c_.decoder ? lengths_ : ends - slice(starts_, 0, 0, starts_.dim(0) - 1);
    X owner = sum(cast(less_equal(unsqueeze(ends, {0}), row_number), DType::i64), {1});
    return gather(length, owner, 0);
  }

  // Cosine and sine [tokens, pairs]. In f64: far positions turn by thousands of radians.
  std::pair<X, X> angles(const Rope& rope) {
    const Dim tokens = ids_.dim(0);
    const auto row = [&](const std::vector<double>& values) {
      Tensor tensor = *Tensor::make(DType::f64, {1, static_cast<int64_t>(values.size())});
      std::copy(values.begin(), values.end(), tensor.as<double>());
      return b_.constant(std::move(tensor));
    };
    X position = reshape(cast(positions_, DType::f64), {tokens, 1});
    X angle = position * row(rope.frequencies);
    if (rope.stretch > 0) {
      // The base is multiplied by growth^(d / (d - 2)), so that the first pair keeps its speed.
      X growth = cast(own_length(), DType::f64) * (rope.stretch / static_cast<double>(rope.original_context));
      growth = log(max(growth - (rope.stretch - 1), b_.scalar(DType::f64, 1)));
      std::vector<double> shares;
      for (size_t i = 0; i < rope.frequencies.size(); ++i)
        shares.push_back(-static_cast<double>(i) /
                         static_cast<double>(std::max<size_t>(rope.frequencies.size(), 2) - 1));
      angle = angle * exp(growth * row(shares));
    }
    X cosine = b_.add1(ops::cos_op, {angle}) * rope.magnitude, sine = b_.add1(ops::sin_op, {angle}) * rope.magnitude;
    if (!rope.long_frequencies.empty()) {
      X longer = less(b_.integer(rope.original_context), own_length());
      X far = position * row(rope.long_frequencies);
      cosine = select(longer, b_.add1(ops::cos_op, {far}) * rope.long_magnitude, cosine);
      sine = select(longer, b_.add1(ops::sin_op, {far}) * rope.long_magnitude, sine);
    }
    return {cast(cosine, DType::f32), cast(sine, DType::f32)};
  }

  X embed() {
    X x = parts_.rows({Part::tokens}, {c_.vocabulary, c_.width}, ids_);
    if (c_.token_types > 0) x = x + parts_.rows({Part::types}, {c_.token_types, c_.width}, types_);
    if (c_.positions > 0) {
      X at = c_.position_offset == 0 ? positions_ : positions_ + b_.integer(c_.position_offset);
      x = x + parts_.rows({Part::positions}, {c_.positions, c_.width}, at);
    }
    if (c_.embedding_scale != 1) x = x * c_.embedding_scale;
    return c_.input_norm ? parts_.norm(x, Part::input_norm, 0) : x;
  }

  X add_layer(X x, int layer) {
    switch (c_.block) {
      case Block::post_norm:
        x = parts_.norm(x + attend(x, layer), Part::attention_norm, layer);
        return parts_.norm(x + parts_.feed_forward(x, layer), Part::feed_norm, layer);
      case Block::parallel: {
        X a = attend(parts_.norm(x, Part::attention_norm, layer), layer);
        return x + a + parts_.feed_forward(parts_.norm(x, Part::feed_norm, layer), layer);
      }
      case Block::pre_norm:
        break;
    }
    X a = attend(c_.layers[static_cast<size_t>(layer)].attention_norm ? parts_.norm(x, Part::attention_norm, layer) : x,
                 layer);
    if (c_.inner_norms) a = parts_.norm(a, Part::attention_out_norm, layer);
    x = x + scaled(a);
    X f = parts_.feed_forward(parts_.norm(x, Part::feed_norm, layer), layer);
    if (c_.inner_norms) f = parts_.norm(f, Part::feed_out_norm, layer);
    return x + scaled(f);
  }
  X scaled(X x) { return c_.residual_scale == 1 ? x : x * c_.residual_scale; }

  X attend(X x, int layer) {
    const Layer& l = c_.layers[static_cast<size_t>(layer)];
    Heads h = parts_.heads(x, layer);
    if (l.rope >= 0) {
      const auto& [cosine, sine] = angles_[static_cast<size_t>(l.rope)];
      const int64_t interleaved = c_.ropes[static_cast<size_t>(l.rope)].interleaved;
      h.q = b_.add1(ops::rope_op, {h.q, cosine, sine}, {interleaved});
      h.k = b_.add1(ops::rope_op, {h.k, cosine, sine}, {interleaved});
    }
    const auto kept = [&](X x, size_t state) {
      // Without a cache, each row is a page of its own.
      return c_.decoder ? append(states_[state], x) : Kept{unsqueeze(x, {2}), {&b_, ir::kNoValue}};
    };
    const auto first = static_cast<size_t>(2 * layer);
    const Kept k = kept(h.k, first), v = kept(h.v, first + 1);
    X y = b_.add1(ops::ragged_attention_op, {h.q, k.rows, v.rows, starts_, table_, lengths_, bias_, k.scale, v.scale},
                  {l.attention_scale, c_.attention_softcap, l.left, l.right});
    return parts_.linear(reshape(y, {ids_.dim(0), c_.heads * c_.head_width}), {Part::out, layer}, c_.width,
                         c_.out_bias);
  }

  // The state with a step's rows in it.
  Kept append(const Kept& state, X x) {
    if (!state.scale) return {b_.add1(ops::append_op, {state.rows, x, slots_}), state.scale};
    const X operands[] = {x};
    const ir::Xs codes = b_.add(ops::quantize_rows_op, operands);
    if (!b_.ok()) return state;
    return {b_.add1(ops::append_op, {state.rows, codes[0], slots_}),
            b_.add1(ops::append_op, {state.scale, codes[1], slots_})};
  }

  void output(X x, std::string_view name) {
    graph_.outputs.push_back(x.id);
    graph_.output_names.push_back(graph_.context().name(name));
  }

  void finish_decoder(X x) {
    x = gather(x, picked_, 0);
    if (c_.final_norm) x = parts_.norm(x, Part::final_norm, 0);
    if (!o_.logits) return output(x, "hidden");
    X logits = parts_.linear(x, {c_.tied ? Part::tokens : Part::head}, c_.vocabulary, c_.head_bias);
    if (c_.logit_scale != 1) logits = logits * c_.logit_scale;
    if (c_.logit_softcap != 0) logits = c_.logit_softcap * tanh(logits / c_.logit_softcap);
    output(logits, "logits");
  }

  void finish_encoder(X x) {
    if (c_.final_norm) x = parts_.norm(x, Part::final_norm, 0);
    output(x, "hidden");
    if (!c_.pooler) return;
    X first = gather(x, slice(starts_, 0, 0, starts_.dim(0) - 1), 0);
    output(tanh(parts_.linear(first, {Part::pooler}, c_.width, true)), "pooled");
  }

  const Config& c_;
  const BuildOptions& o_;
  ir::Graph graph_;
  ir::Builder b_;
  Parts parts_;
  X ids_, positions_, starts_, types_, lengths_, table_, slots_, picked_, bias_;
  std::vector<Kept> states_;  // keys and values of each layer in turn
  std::vector<std::pair<X, X>> angles_;
};

}  // namespace

Result<ir::Graph> build(const Config& config, const Weights& weights, const BuildOptions& options) {
  Result<ir::Graph> graph = ModelBuilder(config, weights, options).build();
  if (!graph)
    return tl::unexpected<Error>(
        std::move(graph.error()).within("building a model of kind '" + config.architecture + "'"));
  return graph;
}

}  // namespace tessera::transformer
