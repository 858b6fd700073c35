#include "bench/peers.h"

#include <cstring>
#include <memory>
#include <vector>

#include "tensor/scalar.h"

#ifdef TESSERA_HAS_ONEDNN
#include <omp.h>

#include <dnnl.hpp>
#endif
#ifdef TESSERA_HAS_OPENBLAS
#include <cblas.h>
extern "C" void openblas_set_num_threads(int);
#endif

namespace tessera::bench {
namespace {

#ifdef TESSERA_HAS_ONEDNN
PeerRun onednn(const Case& c, const Tensor& x, const Tensor& w, int threads) {
  using dnnl::memory;
  omp_set_num_threads(threads);
  const auto type_of = [](DType t) {
    return t == DType::f32    ? memory::data_type::f32
           : t == DType::bf16 ? memory::data_type::bf16
           : t == DType::i8   ? memory::data_type::s8
           : t == DType::u8   ? memory::data_type::u8
                              : memory::data_type::undef;
  };
  // bf16 weights meet activations of the same type, which the peer gets as such.
  const memory::data_type types[] = {type_of(w.dtype() == DType::bf16 ? DType::bf16 : x.dtype()), type_of(w.dtype())};
  if (types[0] == memory::data_type::undef || types[1] == memory::data_type::undef) return {};
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  auto stream = std::make_shared<dnnl::stream>(engine);
  const memory::desc from({c.m, c.k}, types[0], memory::format_tag::ab);
  const memory::desc plain({c.k, c.n}, types[1], memory::format_tag::ba),
      any({c.k, c.n}, types[1], memory::format_tag::any);
  const memory::desc to({c.m, c.n}, types[1] == memory::data_type::s8 ? memory::data_type::s32 : memory::data_type::f32,
                        memory::format_tag::ab);
  const dnnl::matmul::primitive_desc description({from, any, to}, engine);
  const auto product = std::make_shared<dnnl::matmul>(description);
  memory source(from, engine), target(to, engine), given(plain, engine);
  if (types[0] == type_of(x.dtype())) {
    std::memcpy(source.get_data_handle(), x.data(), x.bytes());
  } else {
    for (int64_t i = 0; i < x.count(); ++i)
      encode(w.dtype(), source.get_data_handle(), i, decode(x.dtype(), x.data(), i));
  }
  std::memcpy(given.get_data_handle(), w.data(), w.bytes());
  std::vector<memory> weights;
  for (int s = 0; s < c.sets; ++s) {
    weights.emplace_back(description.weights_desc(), engine);
    dnnl::reorder(given, weights.back()).execute(*stream, given, weights.back());
  }
  stream->wait();
  return [=](int64_t i) {
    product->execute(*stream, {{DNNL_ARG_SRC, source},
                               {DNNL_ARG_WEIGHTS, weights[static_cast<size_t>(i) % weights.size()]},
                               {DNNL_ARG_DST, target}});
    stream->wait();
  };
}
#endif

#ifdef TESSERA_HAS_ONEDNN
// With weights and activations in the layouts that the library likes best, as it keeps them within a network.
PeerRun onednn_conv(const Case& c, const Tensor& x, const Tensor& w, int threads) {
  using dnnl::memory;
  omp_set_num_threads(threads);
  const auto list = [&](size_t i) { return std::get<std::vector<int64_t>>(c.attrs[i]); };
  memory::dims dilations;  // counted from 0
  for (int64_t d : list(1)) dilations.push_back(d - 1);
  memory::dims filters = w.shape();
  const int64_t groups = std::get<int64_t>(c.attrs[4]);
  if (groups > 1) {
    filters[0] /= groups;
    filters.insert(filters.begin(), groups);
  }
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  auto stream = std::make_shared<dnnl::stream>(engine);
  const auto any = [](const memory::dims& dims) {
    return memory::desc(dims, memory::data_type::f32, memory::format_tag::any);
  };
  const dnnl::convolution_forward::primitive_desc description(
      {dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_auto, any(x.shape()), any(filters),
       any(c.result), list(0), dilations, list(2), list(3)},
      engine);
  const auto conv = std::make_shared<dnnl::convolution_forward>(description);
  memory source(description.src_desc(), engine), weights(description.weights_desc(), engine),
      target(description.dst_desc(), engine);
  const auto reorder = [&](const Tensor& from, const memory::dims& dims, memory& to) {
    memory::dims strides(dims.size(), 1);
    for (size_t a = dims.size() - 1; a-- > 0;) strides[a] = strides[a + 1] * dims[a + 1];
    memory plain({dims, memory::data_type::f32, strides}, engine);
    std::memcpy(plain.get_data_handle(), from.data(), from.bytes());
    dnnl::reorder(plain, to).execute(*stream, plain, to);
  };
  reorder(x, x.shape(), source);
  reorder(w, filters, weights);
  stream->wait();
  return [=](int64_t) {
    conv->execute(*stream, {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, target}});
    stream->wait();
  };
}
#endif

#ifdef TESSERA_HAS_OPENBLAS
PeerRun openblas(const Case& c, const Tensor& x, const Tensor& w, int threads) {
  if (x.dtype() != DType::f32 || w.dtype() != DType::f32) return {};
  openblas_set_num_threads(threads);
  std::vector<std::shared_ptr<std::vector<float>>> weights;
  for (int s = 0; s < c.sets; ++s)
    weights.push_back(std::make_shared<std::vector<float>>(w.as<float>(), w.as<float>() + c.n * c.k));
  auto y = std::make_shared<std::vector<float>>(static_cast<size_t>(c.m * c.n));
  const auto m = static_cast<blasint>(c.m), n = static_cast<blasint>(c.n), k = static_cast<blasint>(c.k);
  return [=](int64_t i) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, x.as<float>(), k,
                weights[static_cast<size_t>(i) % weights.size()]->data(), k, 0, y->data(), n);
  };
}
#endif

}  // namespace

PeerRun peer_run([[maybe_unused]] const std::string& peer, [[maybe_unused]] const Case& c,
                 [[maybe_unused]] const Tensor& x, [[maybe_unused]] const Tensor& w, [[maybe_unused]] int threads) {
#ifdef TESSERA_HAS_ONEDNN
  try {
    if (peer == "onednn" && c.m > 0) return onednn(c, x, w, threads);
    if (peer == "onednn" && c.op == "conv") return onednn_conv(c, x, w, threads);
  } catch (const dnnl::error&) {
    return {};  // types that it does not know on this machine
  }
#endif
#ifdef TESSERA_HAS_OPENBLAS
  if (peer == "openblas" && c.m > 0) return openblas(c, x, w, threads);
#endif
  return {};
}

}  // namespace tessera::bench
