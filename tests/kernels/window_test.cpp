#include <gtest/gtest.h>

#include <cmath>

#include "check.h"

namespace tessera::kernel_test {
namespace {

using List = std::vector<int64_t>;

void conv(Dims x, Dims w, List strides, List dilations, List low, List high, int64_t groups, bool bias) {
  const int64_t m = w[0];
  check({"conv",
         {{DType::f32, std::move(x)}, {DType::f32, std::move(w)}, bias ? Operand{DType::f32, {m}} : absent()},
         {strides, dilations, low, high, groups},
         1e-5,
         1e-4});
}

TEST(Window, Conv) {
  for (bool bias : {false, true}) {
    conv({2, 3, 20}, {5, 3, 3}, {1}, {1}, {1}, {1}, 1, bias);
    conv({2, 3, 9, 21}, {7, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1, bias);
    conv({1, 4, 9, 40}, {6, 4, 3, 5}, {2, 2}, {1, 2}, {1, 0}, {0, 3}, 1, bias);
    conv({2, 6, 7, 8}, {9, 2, 2, 3}, {1, 1}, {2, 1}, {2, 1}, {0, 1}, 3, bias);
    conv({2, 6, 7, 8}, {6, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 6, bias);   // depthwise
    conv({2, 6, 7, 9}, {12, 1, 3, 3}, {2, 2}, {1, 1}, {0, 1}, {1, 2}, 6, bias);  // depthwise, strided
    conv({1, 33, 8, 8}, {50, 33, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1, bias);
    conv({1, 2, 4, 5, 6}, {7, 2, 2, 2, 3}, {1, 2, 1}, {1, 1, 2}, {1, 0, 1}, {0, 1, 2}, 1, bias);
  }
  conv({1, 2, 3}, {3, 2, 5}, {1}, {1}, {4}, {4}, 1, true);  // windows that lie in the padding alone
  conv({0, 2, 5}, {3, 2, 3}, {1}, {1}, {0}, {0}, 1, true);
}

TEST(Window, Pools) {
  struct Shape {
    Dims x;
    List kernel, strides, dilations, low, high, extra;
  };
  const Shape shapes[] = {{{2, 3, 9}, {3}, {2}, {1}, {1}, {1}, {1}},
                          {{2, 3, 9, 8}, {2, 3}, {2, 1}, {1, 2}, {0, 2}, {1, 2}, {0, 0}},
                          {{1, 2, 5, 6, 7}, {2, 2, 3}, {1, 2, 2}, {1, 1, 1}, {1, 0, 1}, {0, 1, 1}, {0, 1, 0}}};
  for (const Shape& s : shapes) {
    check({"max_pool", {{DType::f32, s.x, -3, 3, true}}, {s.kernel, s.strides, s.dilations, s.low, s.high}});
    for (int64_t include : {0, 1})
      check({"average_pool",
             {{DType::f32, s.x}},
             {s.kernel, s.strides, s.dilations, s.low, s.high, s.extra, include},
             1e-6,
             1e-6});
  }
}

void attention(Dims q, Dims k, Dims v, Operand mask, Shape causal, double softcap) {
  check({"attention",
         {{DType::f32, std::move(q)}, {DType::f32, std::move(k)}, {DType::f32, std::move(v)}, std::move(mask)},
         {0.3, std::move(causal), softcap},
         2e-5,
         2e-5});
}

TEST(Attention, HeadsMasksAndCaps) {
  const auto hides = [](Dims shape) { return Operand{DType::boolean, std::move(shape)}; };
  const auto adds = [](Dims shape) { return Operand{DType::f32, std::move(shape)}; };
  attention({2, 3, 5, 8}, {2, 3, 7, 8}, {2, 3, 7, 6}, absent(), {}, 0);
  attention({2, 6, 50, 16}, {2, 2, 300, 16}, {2, 2, 300, 16}, absent(), {}, 0);
  attention({1, 4, 70, 33}, {1, 2, 150, 33}, {1, 2, 150, 20}, hides({70, 150}), {}, 5);
  attention({2, 2, 9, 8}, {2, 2, 140, 8}, {2, 2, 140, 8}, hides({2, 1, 1, 140}), {}, 0);
  attention({2, 2, 9, 8}, {2, 1, 140, 8}, {2, 1, 140, 8}, adds({2, 9, 1}), {}, 0);
  attention({2, 2, 9, 8}, {2, 2, 10, 8}, {2, 2, 10, 8}, adds({2, 1, 9, 10}), Shape{1}, 0);
  attention({1, 2, 200, 8}, {1, 2, 200, 8}, {1, 2, 200, 8}, absent(), Shape{0}, 0);
  attention({1, 2, 6, 8}, {1, 2, 6, 8}, {1, 2, 6, 8}, absent(), Shape{-3}, 0);  // the first rows see nothing
  attention({1, 1, 4, 8}, {1, 1, 6, 8}, {1, 1, 6, 8}, Operand{DType::boolean, {4, 6}, 0, 0, false, {0}}, {}, 0);
  attention({1, 2, 1, 64}, {1, 2, 129, 64}, {1, 2, 129, 64}, absent(), Shape{128}, 0);
}

}  // namespace
}  // namespace tessera::kernel_test
