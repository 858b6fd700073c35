#include "import/huggingface/families.h"

#include "import/transformer/rope.h"

namespace tessera::huggingface {

using transformer::Activation;
using transformer::Rope;

std::span<const Family> families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> list(decoder_families().begin(), decoder_families().end());
    list.insert(list.end(), encoder_families().begin(), encoder_families().end());
    return list;
  }();
  return all;
}

Result<const Family*> find_family(std::string_view type) {
  std::string known;
  for (const Family& family : families()) {
    if (family.type == type) return &family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.type);
  }
  return fail(Code::unsupported_feature, "models of type '{}' are not known, only {}", type, known);
}

Activation read_activation(Fields& fields, std::string_view key, std::string_view otherwise) {
  constexpr std::pair<std::string_view, Activation> kActivations[] = {{"silu", Activation::silu},
                                                                      {"swish", Activation::silu},
                                                                      {"gelu", Activation::gelu},
                                                                      {"gelu_python", Activation::gelu},
                                                                      {"gelu_new", Activation::gelu_tanh},
                                                                      {"gelu_fast", Activation::gelu_tanh},
                                                                      {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                                      {"gelu_python_tanh", Activation::gelu_tanh},
                                                                      {"gelu_accurate", Activation::gelu_tanh},
                                                                      {"relu", Activation::relu}};
  const std::string text = fields.text(key, otherwise);
  for (const auto& [name, activation] : kActivations)
    if (name == text) return activation;
  fields.fail_with(fail(Code::unsupported_feature, "the activation '{}' is not supported", text).value());
  return Activation::silu;
}

const Json& rope_parameters(Fields& fields, std::string_view kind) {
  const Json& both = fields.object(fields.find("rope_parameters") ? "rope_parameters" : "rope_scaling");
  const Json* found = both.find(kind);
  return found != nullptr && found->members() != nullptr ? *found : both;
}

double read_theta(Fields& fields, const Json& parameters, double otherwise) {
  const double outer = fields.real("rope_theta", otherwise);
  Fields inner(parameters, "the rope parameters");
  const double theta = inner.real("rope_theta", outer);
  if (!inner.status()) fields.fail_with(inner.status().error());
  return theta;
}

namespace {

void read_long(Fields& fields, Fields& inner, Rope& rope) {
  transformer::LongRopeScaling s;
  s.short_factors = inner.reals("short_factor");
  s.long_factors = inner.reals("long_factor");
  const int64_t context = fields.integer("max_position_embeddings", 4096);
  s.original_context =
      inner.integer("original_max_position_embeddings", fields.integer("original_max_position_embeddings", context));
  s.stretch = inner.real("factor",
                         static_cast<double>(context) / static_cast<double>(std::max<int64_t>(s.original_context, 1)));
  s.magnitude = inner.real("attention_factor", 0);
  const size_t pairs = rope.frequencies.size();
  if (s.short_factors.size() != pairs || s.long_factors.size() != pairs) {
    fields.fail_with(fail(Code::shape_mismatch, "the rope parameters have {} short and {} long factors for {} pairs",
                          s.short_factors.size(), s.long_factors.size(), pairs)
                         .value());
    return;
  }
  transformer::scale_long(rope, s);
}

void read_yarn(Fields& fields, Fields& inner, double theta, Rope& rope) {
  transformer::YarnScaling s;
  s.theta = theta;
  s.original_context = static_cast<double>(
      inner.integer("original_max_position_embeddings", fields.integer("max_position_embeddings", 4096)));
  s.factor = inner.real("factor");
  s.beta_fast = inner.real("beta_fast", 32);
  s.beta_slow = inner.real("beta_slow", 1);
  s.truncate = inner.flag("truncate", true);
  transformer::scale_yarn(rope.frequencies, s);
  const double scale = inner.real("mscale", 0), all = inner.real("mscale_all_dim", 0);
  const double plain = scale != 0 && all != 0
                           ? transformer::yarn_magnitude(s.factor, scale) / transformer::yarn_magnitude(s.factor, all)
                           : transformer::yarn_magnitude(s.factor);
  rope.magnitude = inner.real("attention_factor", plain);
}

}  // namespace

Rope read_rope(Fields& fields, const Json& parameters, double theta, int64_t width) {
  Fields inner(parameters, "the rope parameters");
  const double part = inner.real("partial_rotary_factor", fields.real("partial_rotary_factor", 1.0));
  const auto turned = static_cast<int64_t>(part * static_cast<double>(width));
  if (!(theta > 0) || turned < 2 || turned > width || width > transformer::kMaxHeadWidth) {
    fields.fail_with(
        fail(Code::attribute_invalid, "a rope of base {} over {} of {} elements", theta, turned, width).value());
    return {};
  }
  Rope rope;
  rope.frequencies = transformer::rope_frequencies(turned, theta);
  const std::string type = inner.text("rope_type", inner.text("type", "default"));
  if (type == "linear") {
    const double factor = inner.real("factor");
    for (double& f : rope.frequencies) f /= factor;
  } else if (type == "llama3") {
    transformer::Llama3Scaling s;
    s.factor = inner.real("factor");
    s.low = inner.real("low_freq_factor", 1);
    s.high = inner.real("high_freq_factor", 4);
    s.original_context = static_cast<double>(inner.integer("original_max_position_embeddings", 8192));
    transformer::scale_llama3(rope.frequencies, s);
  } else if (type == "yarn") {
    read_yarn(fields, inner, theta, rope);
  } else if (type == "longrope" || type == "su") {
    read_long(fields, inner, rope);
  } else if (type == "dynamic") {
    rope.stretch = inner.real("factor");
    rope.original_context = fields.integer("max_position_embeddings", 2048);
    if (!(rope.stretch >= 1) || rope.original_context < 1)
      fields.fail_with(fail(Code::attribute_invalid, "a dynamic rope of factor {} over {} tokens", rope.stretch,
                            rope.original_context)
                           .value());
  } else if (type != "default") {
    fields.fail_with(fail(Code::unsupported_feature, "the rope type '{}' is not supported", type).value());
  }
  if (!inner.status()) fields.fail_with(inner.status().error());
  return rope;
}

}  // namespace tessera::huggingface
