#include "engine/check_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>

#include "tessera/dtype.h"

namespace tessera::engine {
namespace {

kernels::View view(DType dtype, std::initializer_list<int64_t> shape) {
  kernels::View v = {};
  v.type = static_cast<uint8_t>(dtype);
  v.rank = static_cast<uint8_t>(shape.size());
  v.present = 1;
  std::copy(shape.begin(), shape.end(), v.shape);
  return v;
}

Status check(std::string_view op, std::vector<kernels::View> in, std::vector<kernels::View> out,
             std::vector<kernels::Attr> attrs = {}) {
  kernels::Args args = {};
  args.in = in.data();
  args.n_in = static_cast<int>(in.size());
  args.out = out.data();
  args.n_out = static_cast<int>(out.size());
  args.attrs = attrs.data();
  args.n_attrs = static_cast<int>(attrs.size());
  return check_step(op, args);
}

TEST(CheckStep, ResultsMustBeTheOperatorsOwn) {
  EXPECT_TRUE(check("add", {view(DType::f32, {2, 1}), view(DType::f32, {3})}, {view(DType::f32, {2, 3})}));
  const std::vector<std::vector<kernels::View>> wrong = {
      {view(DType::f32, {2, 4})}, {view(DType::f32, {6})}, {view(DType::f64, {2, 3})}, {}};
  for (const std::vector<kernels::View>& out : wrong) {
    const Status status = check("add", {view(DType::f32, {2, 1}), view(DType::f32, {3})}, out);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, Code::artifact_corrupt);
  }
}

TEST(CheckStep, OperandsMustFitTogether) {
  EXPECT_FALSE(check("add", {view(DType::f32, {2}), view(DType::f32, {3})}, {view(DType::f32, {3})}));
  EXPECT_FALSE(check("add", {view(DType::f32, {2})}, {view(DType::f32, {2})}));
  EXPECT_FALSE(check("no such operator", {}, {}));
}

TEST(CheckStep, AttributesAreChecked) {
  const int64_t six[] = {6}, seven[] = {7};
  EXPECT_TRUE(check("copy", {view(DType::u8, {2, 3})}, {view(DType::u8, {6})}, {{0, 0, six, 1}}));
  EXPECT_FALSE(check("copy", {view(DType::u8, {2, 3})}, {view(DType::u8, {7})}, {{0, 0, seven, 1}}));
  EXPECT_FALSE(check("copy", {view(DType::u8, {2, 3})}, {view(DType::u8, {6})}));
  EXPECT_FALSE(check("cast", {view(DType::u8, {2})}, {view(DType::u8, {2})}, {{99, 0, nullptr, 0}}));
}

}  // namespace
}  // namespace tessera::engine
