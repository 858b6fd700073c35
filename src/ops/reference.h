// What the primitives' references share.
#pragma once

#include <cmath>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "ir/interpreter.h"

namespace tessera::ops {

using ir::Array;
using ir::Eval;
using ir::Int;
__extension__ typedef unsigned __int128 UInt;

// Exact below 2^127; past it the low bits, which are all that a 64-bit result keeps.
inline Int multiply(Int a, Int b) { return static_cast<Int>(static_cast<UInt>(a) * static_cast<UInt>(b)); }

// Row-major strides of `shape` in elements.
inline std::vector<int64_t> strides_of(const Dims& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// Strides of `shape` when it is numpy-broadcast to `to`: 0 along axes that repeat.
inline std::vector<int64_t> broadcast_strides(const Dims& shape, const Dims& to) {
  std::vector<int64_t> own = strides_of(shape);
  std::vector<int64_t> strides(to.size(), 0);
  size_t lead = to.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) strides[lead + i] = shape[i] == 1 && to[lead + i] != 1 ? 0 : own[i];
  return strides;
}

// Numpy broadcasting of concrete shapes; E0312.
Result<Dims> broadcast(const Dims& a, const Dims& b);

// Calls visit(linear, offsets...) for every index of `shape` in row-major order, with the offset under each set of
// strides.
template <size_t N, class F>
void for_each_index(const Dims& shape, const std::vector<int64_t>* const (&strides)[N], F visit) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  int64_t offsets[N] = {};
  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    visit(i, offsets);
    for (size_t axis = shape.size(); axis-- > 0;) {
      for (size_t k = 0; k < N; ++k) offsets[k] += (*strides[k])[axis];
      if (++index[axis] < shape[axis]) break;
      for (size_t k = 0; k < N; ++k) offsets[k] -= (*strides[k])[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

// Calls f with x's elements as std::vector<double>, <Int> or <Dim>.
template <class F>
decltype(auto) visit_data(const Array& x, F f) {
  return std::visit(f, x.data);
}

// y[i] = f(x[i]) with y of type `to`. f takes and gives the scalar; R is the result's scalar.
template <class S, class R, class F>
Status map1(Eval& e, DType to, F f) {
  const Array& x = e.in(0);
  std::vector<R> data;
  data.reserve(x.of<S>().size());
  for (const S& v : x.of<S>()) data.push_back(f(v));
  e.out(Array{to, x.shape, std::move(data)});
  return {};
}

// y = f(a, b), broadcast. f may fail by returning Result<R>.
template <class S, class R, class F>
Status map2(Eval& e, DType to, F f) {
  const Array& a = e.in(0);
  const Array& b = e.in(1);
  TESSERA_ASSIGN(Dims shape, broadcast(a.shape, b.shape));
  std::vector<int64_t> sa = broadcast_strides(a.shape, shape), sb = broadcast_strides(b.shape, shape);
  const std::vector<S>& da = a.of<S>();
  const std::vector<S>& db = b.of<S>();
  std::vector<R> data;
  Status status;
  for_each_index<2>(shape, {&sa, &sb}, [&](int64_t, const int64_t(&at)[2]) {
    if (!status) return;
    auto value = f(da[static_cast<size_t>(at[0])], db[static_cast<size_t>(at[1])]);
    if constexpr (std::is_same_v<decltype(value), Result<R>>) {
      if (value) {
        data.push_back(std::move(*value));
      } else {
        status = tl::unexpected<Error>(std::move(value.error()));
      }
    } else {
      data.push_back(value);
    }
  });
  TESSERA_TRY(status);
  e.out(Array{to, std::move(shape), std::move(data)});
  return {};
}

}  // namespace tessera::ops
