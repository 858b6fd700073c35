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

}  // namespace
}  // namespace tessera::kernel_test
