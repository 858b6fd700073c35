#include "passes/pipeline.h"

namespace tessera::passes {
namespace {

constexpr Pass kPipeline[] = {
    {"dce", remove_dead, 0, "what no output needs is not worth a look"},
    {"shapes", fold_shapes, 0, "sizes that are known as expressions need no run"},
    {"weights", use_stored_weights, 2, "weights stay as small as they are stored, which is what reading them costs"},
    {"quantized", raise_quantized, 2, "products of quantized numbers stay integers, and their scales go into them"},
    {"fold", fold_constants, 1, "what depends on constants only is computed once, here"},
    {"identity", remove_identities, 1, "nodes that give their operand back hide equal values from each other"},
    {"cse", merge_equal, 1, "the same computation is done once; patterns then see one value"},
    {"fuse", fuse, 2, "one kernel for a formula reads and writes memory once"},
    {"precision", lower_precision, 2, "layers are computed in the precision that the user asks for"},
    {"cse2", merge_equal, 2, "two layers may have spelled the same formula in two ways"},
};

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

}  // namespace tessera::passes
