// pointwise: tile programs that follow nothing.
#include "kernels/abi.h"
#include "kernels/isa/blocks.h"
#include "kernels/isa/export.h"
#include "kernels/isa/program.h"

namespace {

using namespace tessera::kernels;

int64_t last_axis(const View& v) { return v.rank == 0 ? 1 : v.shape[v.rank - 1]; }

int pointwise(const Args& args) noexcept {
  const View& out = args.out[0];
  const View* kept = args.n_out > 1 ? &args.out[1] : nullptr;
  const int64_t count = element_count(out);
  if (count == 0) return kDone;
  ProgramJob job;
  job.tile = tile_code(args.attrs, args.n_in);
  job.norm = tile_norm(args.attrs + 2);
  job.operands = tile_operands(out, args.in, args.n_in);
  if (job.norm.kind == TileNorm::none) {
    run_flat(job.tile, job.operands, out, kept, args.parallel);
    return kDone;
  }
  if (out.type != kF32) return kValueInvalid;
  job.n = last_axis(out);
  job.rows = count / job.n;
  job.y = static_cast<float*>(out.data);
  job.kept = kept == nullptr ? nullptr : static_cast<float*>(kept->data);
  run_job(job, args.parallel);
  return kDone;
}

}  // namespace

TESSERA_FAMILY(fused, {"pointwise_f32", pointwise, nullptr})
