#include "passes/pipeline.h"

namespace tessera::passes {
namespace {

constexpr Pass kPipeline[] = {
    {"dce", remove_dead, 0, "what no output needs is not worth a look"},
    {"shapes", fold_shapes, 0, "sizes that are known as expressions need no run"},
    {"unroll", unroll, 1, "lists and loops of known length hide what is computed in them"},
    {"equal_sizes", equal_sizes, 1, "sizes that a guard says are equal have one name"},
    {"shapes2", fold_shapes, 1, "what was unrolled knows its shapes"},
    {"weights", use_stored_weights, 2, "weights stay as small as they are stored, which is what reading them costs"},
    {"quantized", raise_quantized, 2, "products of quantized numbers stay integers, and their scales go into them"},
    {"expand", expand_composites, 2, "what no kernel computes whole stands as its formula, which others recognise"},
    {"fold", fold_constants, 1, "what depends on constants only is computed once, here"},
    {"identity", remove_identities, 1, "nodes that give their operand back hide equal values from each other"},
    {"cse", merge_equal, 1, "the same computation is done once; patterns then see one value"},
    {"own_rules", apply_own_rules, 1, "what the user's own rules say, before formulas disappear in larger ones"},
    {"attention", raise_attention, 2, "softmax between two products, whatever the mask: no score is stored"},
    {"fuse", fuse, 2, "one kernel for a formula reads and writes memory once"},
    {"attention2", raise_attention, 2, "softmax that was spelled out itself is known by now"},
    {"scales", fold_channel_scales, 2, "a convolution's weights take the scale of a batch norm behind it"},
    {"rows", lift_rows, 2, "a layer works on rows whatever axes they stand in: reshapes around it go"},
    {"identity2", remove_identities, 2, "the reshapes that came together compose"},
    {"fold2", fold_constants, 2, "composites want tables in another form than formulas"},
    {"own_rules2", apply_own_rules, 2, "and where they are about composites"},
    {"precision", lower_precision, 2, "layers are computed in the precision that the user asks for"},
    {"cse2", merge_equal, 2, "two layers may have spelled the same formula in two ways"},
    {"regions", form_regions, 2, "what follows a product is done while its result lies in cache"},
    {"siblings", merge_siblings, 2, "layers of one input are one larger product"},
    {"identity3", remove_identities, 2, "the parts of a merged product are views, as are their heads"},
    {"rotations", merge_rotations, 2, "queries and keys of one product turn together"},
    {"identity4", remove_identities, 2, "and come apart as views"},
};

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

}  // namespace tessera::passes
