// The operands of linear and fused_linear as products, for every type of weights.
#pragma once

#include "kernels/abi.h"
#include "kernels/isa/gemm.h"
#include "kernels/isa/program.h"

namespace {

using namespace tessera::kernels;

// x is dense: its leading axes are rows.
inline Products linear_products(const Args& args) {
  const View& x = args.in[0];
  const View& w = args.in[1];
  const View& y = args.out[0];
  Products p;
  p.k = x.shape[x.rank - 1];
  p.n = w.shape[0];
  p.m = 1;
  for (int i = 0; i + 1 < x.rank; ++i) p.m *= x.shape[i];
  p.a = {static_cast<const float*>(x.data), p.k, 1};
  p.b = {static_cast<const float*>(w.data), w.stride[0], w.stride[1]};
  p.c = {static_cast<float*>(y.data), p.n};
  p.batches = 1;
  p.batch.rank = 1;
  p.batch.shape[0] = 1;
  p.batch.stride[0][0] = p.batch.stride[1][0] = 0;
  p.c_step = 0;
  p.bias = args.n_in > 2 && args.in[2].present ? static_cast<const float*>(args.in[2].data) : nullptr;
  return p;
}

// fused_linear. Where the program needs no more than one element of the product at a time, it runs on each tile:
// multiply(p, &job). Else the product goes where the result will lie, or to the scratch when it has several parts, and
// the program runs on blocks of it.
inline int parts_of(const Args& args) { return static_cast<int>(args.attrs[0].i); }
inline size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }
inline size_t parts_bytes(const Args& args) {
  const Products p = linear_products(args);
  return parts_of(args) > 1 ? static_cast<size_t>(p.m * p.n) * 4 : 0;
}
template <class Multiply>
int fused_linear(const Args& args, size_t scratch, bool tiles, const Multiply& multiply) {
  Products p = linear_products(args);
  ProgramJob job;
  job.parts = parts_of(args);
  const int more = args.n_in > 3 ? args.n_in - 3 : 0;
  job.tile = tile_code(args.attrs + 1, job.parts + more);
  job.norm = tile_norm(args.attrs + 3);
  job.operands = tile_operands(args.out[0], args.in + 3, more);
  job.rows = p.m;
  job.n = p.n / job.parts;
  job.y = static_cast<float*>(args.out[0].data);
  job.kept = args.n_out > 1 ? static_cast<float*>(args.out[1].data) : nullptr;
  p.c = {job.parts == 1 ? job.y : reinterpret_cast<float*>(static_cast<char*>(args.scratch) + rounded(scratch)), p.n};
  job.product = p.c.data;
  const bool on_tiles = tiles && job.parts == 1 && job.norm.kind == TileNorm::none;
  multiply(p, on_tiles ? &job : nullptr);
  if (!on_tiles) run_job(job, args.parallel);
  return kDone;
}

}  // namespace
