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
  // Depthwise: every number of vectors of a row, strides that part it, gaps, taps in the padding alone, bands and
  // columns that are cut, and what is too large to be cut.
  for (int64_t width : {1, 7, 8, 9, 16, 17, 40, 63, 64, 65, 127, 128, 129, 200, 300})
    conv({1, 3, 5, width}, {3, 1, 3, 5}, {1, 1}, {1, 1}, {1, 2}, {1, 2}, 3, true);
  for (int64_t stride : {2, 3, 5}) conv({2, 2, 11, 50}, {4, 1, 5, 5}, {2, stride}, {1, 2}, {2, 3}, {2, 4}, 2, true);
  conv({1, 2, 20, 33}, {2, 1, 3, 3}, {1, 1}, {7, 9}, {7, 9}, {7, 9}, 2, false);
  conv({1, 2, 3, 4}, {2, 1, 3, 3}, {1, 1}, {1, 1}, {5, 6}, {5, 6}, 2, true);
  conv({1, 2, 300, 60}, {2, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 2, true);
  conv({1, 2, 30000}, {2, 1, 9}, {1}, {1}, {4}, {4}, 2, true);
  conv({1, 2, 9001}, {2, 1, 3}, {1}, {4000}, {4000}, {4000}, 2, true);
  conv({1, 2, 40, 40}, {2, 1, 31, 31}, {1, 1}, {1, 1}, {15, 15}, {15, 15}, 2, true);
  conv({1, 2, 4, 6, 20}, {2, 1, 3, 3, 3}, {1, 2, 2}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 2, true);
  conv({1, 4, 6, 20}, {2, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1, true);  // few products, several channels
  // Pointwise: x is the matrix of columns; not so with a stride or with padding.
  conv({2, 40, 7, 19}, {30, 40, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1, true);
  conv({2, 40, 7, 19}, {30, 40, 1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, 1, true);
  conv({2, 40, 7, 19}, {30, 40, 1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1, true);
  conv({1, 2, 3}, {3, 2, 5}, {1}, {1}, {4}, {4}, 1, true);  // windows that lie in the padding alone
  conv({0, 2, 5}, {3, 2, 3}, {1}, {1}, {0}, {0}, 1, true);
  conv({1, 0, 5}, {3, 0, 3}, {1}, {1}, {1}, {1}, 1, true);  // nothing to add up
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
