#include "import/transformer/config.h"

namespace tessera::transformer {

Status check(const Config& c) {
  const auto positive = [](int64_t n, int64_t most) { return n > 0 && n <= most; };
  if (!positive(c.vocabulary, 1 << 24) || !positive(c.width, 1 << 20) || !positive(c.heads, 1 << 14) ||
      !positive(c.groups, c.heads) || c.heads % c.groups != 0 || !positive(c.head_width, kMaxHeadWidth) ||
      !positive(c.feed_width, 1 << 22) || !positive(c.context, int64_t{1} << 32))
    return fail(Code::shape_invalid,
                "the model has {} tokens, a width of {}, {} heads of {} in {} groups, networks of {} and a "
                "context of {}",
                c.vocabulary, c.width, c.heads, c.head_width, c.groups, c.feed_width, c.context);
  for (const Layer& layer : c.layers)
    if (layer.experts && (!positive(c.experts.count, 1 << 14) || !positive(c.experts.used, c.experts.count) ||
                          !positive(c.experts.width, 1 << 22)))
      return fail(Code::shape_invalid, "the model has {} of {} experts of {}", c.experts.used, c.experts.count,
                  c.experts.width);
  return {};
}

}  // namespace tessera::transformer
