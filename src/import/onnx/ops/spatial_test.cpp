// Convolutions, pools and their like against the sums that define them, with known sizes and with sizes that only the
// run tells.
#include "import/onnx/ops/spatial.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <string>

#include "import/onnx/importer.h"
#include "ir/interpreter.h"

namespace tessera::onnx {
namespace {

using Numbers = std::vector<double>;
using Ints = std::vector<int64_t>;

struct Tensor64 {
  Dims shape;
  Numbers data;
  DType dtype = DType::f64;
};

int64_t count_of(const Dims& shape) {
  int64_t count = 1;
  for (int64_t d : shape) count *= d;
  return count;
}

// Values in (-1, 1), others for each seed.
Tensor64 random(Dims shape, uint64_t seed) {
  Tensor64 t{shape, {}};
  for (int64_t i = 0; i < count_of(shape); ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    t.data.push_back(static_cast<double>(seed >> 33) / 0x1p30 - 1);
  }
  return t;
}

AttributeProto ints(std::string_view name, Ints values) { return {name, {}, AttributeType::ints, std::move(values)}; }
AttributeProto integer(std::string_view name, int64_t value) { return {name, {}, AttributeType::i64, value}; }
AttributeProto real(std::string_view name, float value) { return {name, {}, AttributeType::f32, value}; }
AttributeProto text(std::string_view name, std::string_view value) { return {name, {}, AttributeType::string, value}; }
using Attributes = std::vector<AttributeProto>;

DataType data_type(DType t) {
  return t == DType::f32   ? DataType::f32
         : t == DType::i64 ? DataType::i64
         : t == DType::i32 ? DataType::i32
         : t == DType::u8  ? DataType::u8
                           : DataType::f64;
}

// Runs a model of one node. `symbolic`: the sizes of its inputs behind the first two axes are unknown to the importer.
Result<std::vector<Tensor64>> run(std::string_view op, int64_t opset, Attributes attributes,
                                  const std::vector<Tensor64>& inputs, int outputs = 1, bool symbolic = false) {
  std::deque<std::string> names;
  ImportOptions options;
  ModelProto model;
  model.opset_import.push_back({"", opset});
  NodeProto node;
  node.op_type = op;
  node.attribute = std::move(attributes);
  std::vector<ir::RefValue> values;
  for (const Tensor64& input : inputs) {
    ValueInfoProto info;
    info.name = names.emplace_back("x" + std::to_string(values.size()));
    node.input.push_back(info.name);
    info.type.kind = TypeProto::Kind::tensor;
    info.type.elem_type = static_cast<int32_t>(data_type(input.dtype));
    info.type.shape.emplace();
    for (size_t i = 0; i < input.shape.size(); ++i)
      info.type.shape->push_back(symbolic && i >= 2 ? DimensionProto{} : DimensionProto{input.shape[i], {}});
    model.graph.input.push_back(info);
    ir::Array array{input.dtype, input.shape, input.data};
    if (!is_float(input.dtype)) array.data = std::vector<ir::Int>(input.data.begin(), input.data.end());
    if (input.dtype == DType::i64)
      options.input_values[std::string(info.name)] = Ints(input.data.begin(), input.data.end());
    values.push_back({std::make_shared<const ir::Array>(std::move(array))});
  }
  for (int i = 0; i < outputs; ++i) {
    ValueInfoProto info;
    info.name = names.emplace_back("y" + std::to_string(i));
    node.output.push_back(info.name);
    model.graph.output.push_back(info);
  }
  model.graph.node.push_back(node);
  TESSERA_ASSIGN(ir::Graph graph, Importer(model, {}, options).run());
  TESSERA_ASSIGN(std::vector<ir::RefValue> results, ir::Interpreter().run(graph, values));
  std::vector<Tensor64> tensors;
  for (const ir::RefValue& result : results) {
    const ir::Array& array = result.array();
    Tensor64 t{array.shape, {}, array.dtype};
    if (array.is_real()) {
      t.data = array.of<double>();
    } else {
      for (ir::Int v : array.of<ir::Int>()) t.data.push_back(static_cast<double>(v));
    }
    tensors.push_back(std::move(t));
  }
  return tensors;
}

Tensor64 result(std::string_view op, int64_t opset, const Attributes& attributes, const std::vector<Tensor64>& inputs,
                bool symbolic = false) {
  auto results = run(op, opset, attributes, inputs, 1, symbolic);
  EXPECT_TRUE(results) << op << ": " << results.error().to_string();
  return results ? (*results)[0] : Tensor64{};
}

void expect_near(const Tensor64& got, const Tensor64& expected, const std::string& what) {
  ASSERT_EQ(got.shape, expected.shape) << what;
  for (size_t i = 0; i < expected.data.size(); ++i)
    ASSERT_NEAR(got.data[i], expected.data[i], 1e-9) << what << " " << i;
}

// Calls visit(index) for every index of the shape.
void each_index(const Dims& shape, const std::function<void(const Dims&)>& visit) {
  Dims index(shape.size(), 0);
  for (int64_t i = 0; i < count_of(shape); ++i) {
    visit(index);
    for (size_t a = shape.size(); a-- > 0 && ++index[a] == shape[a];) index[a] = 0;
  }
}

int64_t offset_of(const Dims& shape, const Dims& index) {
  int64_t offset = 0;
  for (size_t a = 0; a < shape.size(); ++a) offset = offset * shape[a] + index[a];
  return offset;
}

struct Window {
  Dims image, kernel;
  Ints strides, dilations, pads;
  int64_t groups = 1;
  std::string_view auto_pad = "";  // then `pads` are those that are expected
  bool ceil = false;

  size_t axes() const { return image.size(); }
  // How many windows an axis has, by counting.
  int64_t count(size_t a) const {
    const int64_t reach = (kernel[a] - 1) * dilations[a] + 1, low = pads[a], padded = image[a] + low + pads[axes() + a];
    int64_t n = 0;
    while (n * strides[a] + reach <= padded ||
           (ceil && n * strides[a] + reach < padded + strides[a] && n * strides[a] < image[a] + low))
      ++n;
    return n;
  }
  Dims counts() const {
    Dims counts;
    for (size_t a = 0; a < axes(); ++a) counts.push_back(count(a));
    return counts;
  }
  // Where tap `k` of window `o` lies in the image.
  int64_t at(size_t a, int64_t o, int64_t k) const { return o * strides[a] + k * dilations[a] - pads[a]; }
  Attributes attributes(bool pool) const {
    Attributes all = {ints("strides", strides), ints("dilations", dilations)};
    if (pool) all.push_back(ints("kernel_shape", kernel));
    if (pool && ceil) all.push_back(integer("ceil_mode", 1));
    if (!pool) all.push_back(integer("group", groups));
    all.push_back(auto_pad.empty() ? ints("pads", pads) : text("auto_pad", auto_pad));
    return all;
  }
};

const Window kWindows[] = {
    {{7}, {3}, {1}, {1}, {0, 0}},
    {{9}, {4}, {3}, {2}, {2, 1}, 2},
    {{5, 6}, {3, 2}, {2, 1}, {1, 1}, {1, 0, 1, 1}},
    {{8, 7}, {3, 3}, {2, 2}, {2, 1}, {2, 1, 0, 1}, 4},
    {{5, 5}, {1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}, 2},
    {{4, 5, 3}, {2, 3, 2}, {1, 2, 1}, {1, 1, 2}, {0, 1, 1, 1, 1, 1}, 2},
    {{7, 8}, {3, 2}, {2, 3}, {1, 1}, {1, 0, 1, 0}, 1, "SAME_UPPER"},
    {{8, 6}, {3, 4}, {2, 1}, {1, 1}, {1, 2, 0, 1}, 1, "SAME_LOWER"},
    {{6, 6}, {3, 2}, {2, 2}, {1, 2}, {0, 0, 0, 0}, 2, "VALID"},
};

Tensor64 convolution(const Window& v, const Tensor64& x, const Tensor64& w) {
  Tensor64 y{{x.shape[0], w.shape[0]}, {}};
  for (int64_t n : v.counts()) y.shape.push_back(n);
  const int64_t members = w.shape[1], outputs = w.shape[0] / v.groups;
  each_index(y.shape, [&](const Dims& o) {
    double sum = 0;
    each_index(w.shape, [&](const Dims& k) {
      if (k[0] != o[1]) return;
      Dims from = {o[0], o[1] / outputs * members + k[1]};
      for (size_t a = 0; a < v.axes(); ++a) {
        from.push_back(v.at(a, o[a + 2], k[a + 2]));
        if (from.back() < 0 || from.back() >= v.image[a]) return;
      }
      sum += x.data[static_cast<size_t>(offset_of(x.shape, from))] * w.data[static_cast<size_t>(offset_of(w.shape, k))];
    });
    y.data.push_back(sum);
  });
  return y;
}

Dims shape_of(int64_t n, int64_t c, const Dims& rest) {
  Dims shape = {n, c};
  shape.insert(shape.end(), rest.begin(), rest.end());
  return shape;
}

TEST(OnnxSpatial, ConvIsTheSumOverItsWindows) {
  for (const Window& v : kWindows) {
    Tensor64 x = random(shape_of(2, 4, v.image), 1), w = random(shape_of(8, 4 / v.groups, v.kernel), 2);
    const std::string what = "window " + std::to_string(&v - kWindows);
    Tensor64 expected = convolution(v, x, w);
    expect_near(result("Conv", 11, v.attributes(false), {x, w}), expected, what);
    expect_near(result("Conv", 22, v.attributes(false), {x, w}, true), expected, what + ", symbolic");
    Tensor64 bias = random({8}, 3);
    for (size_t i = 0; i < expected.data.size(); ++i)
      expected.data[i] += bias.data[i / (expected.data.size() / 16) % 8];
    expect_near(result("Conv", 1, v.attributes(false), {x, w, bias}), expected, what + ", bias");
  }
}

double inner(const Tensor64& a, const Tensor64& b) {
  EXPECT_EQ(a.shape, b.shape);
  double sum = 0;
  for (size_t i = 0; i < a.data.size() && a.shape == b.shape; ++i) sum += a.data[i] * b.data[i];
  return sum;
}

// <conv(x), y> = <x, conv_transpose(y)> for all x and y.
TEST(OnnxSpatial, ConvTransposeIsTheTransposeOfConv) {
  for (const Window& v : kWindows) {
    if (!v.auto_pad.empty()) continue;
    Tensor64 x = random(shape_of(2, 4, v.image), 1), w = random(shape_of(8, 4 / v.groups, v.kernel), 2);
    Tensor64 y = result("Conv", 11, v.attributes(false), {x, w}), other = random(y.shape, 5);
    Attributes attributes = v.attributes(false);
    Ints added;
    for (size_t a = 0; a < v.axes(); ++a)
      added.push_back(v.image[a] - ((v.count(a) - 1) * v.strides[a] + (v.kernel[a] - 1) * v.dilations[a] + 1 -
                                    v.pads[a] - v.pads[v.axes() + a]));
    attributes.push_back(ints("output_padding", added));
    for (bool symbolic : {false, true}) {
      Tensor64 back = result("ConvTranspose", 11, attributes, {other, w}, symbolic);
      EXPECT_NEAR(inner(y, other), inner(x, back), 1e-9) << &v - kWindows;
    }
  }
}

TEST(OnnxSpatial, ConvTransposeShapes) {
  Tensor64 x = random({1, 1, 3, 3}, 1), w = random({1, 2, 3, 3}, 2);
  EXPECT_EQ(result("ConvTranspose", 11, {ints("strides", {2, 2}), text("auto_pad", "SAME_UPPER")}, {x, w}).shape,
            (Dims{1, 2, 6, 6}));
  EXPECT_EQ(result("ConvTranspose", 11, {ints("strides", {3, 2}), ints("output_shape", {10, 8})}, {x, w}).shape,
            (Dims{1, 2, 10, 8}));
  EXPECT_EQ(result("ConvTranspose", 11, {ints("strides", {3, 2}), ints("pads", {1, 2, 1, 2})}, {x, w}).shape,
            (Dims{1, 2, 7, 3}));
}

// `fold` makes a window's elements that lie in the image, and the number of those in the padded image, one.
Tensor64 pooled(const Window& v, const Tensor64& x, const std::function<double(const Numbers&, int64_t)>& fold) {
  Tensor64 y{shape_of(x.shape[0], x.shape[1], v.counts()), {}};
  each_index(y.shape, [&](const Dims& o) {
    Numbers elements;
    int64_t padded = 0;
    each_index(v.kernel, [&](const Dims& k) {
      Dims from = {o[0], o[1]};
      bool in_image = true, in_pads = true;
      for (size_t a = 0; a < v.axes(); ++a) {
        from.push_back(v.at(a, o[a + 2], k[a]));
        in_image &= from.back() >= 0 && from.back() < v.image[a];
        in_pads &= from.back() < v.image[a] + v.pads[v.axes() + a];
      }
      padded += in_pads;
      if (in_image) elements.push_back(x.data[static_cast<size_t>(offset_of(x.shape, from))]);
    });
    y.data.push_back(fold(elements, padded));
  });
  return y;
}

double sum_of(const Numbers& v) {
  double sum = 0;
  for (double e : v) sum += e;
  return sum;
}

TEST(OnnxSpatial, PoolsFoldTheirWindows) {
  for (Window v : kWindows) {
    for (bool ceil : {false, true}) {
      if (ceil && !v.auto_pad.empty()) continue;
      v.ceil = ceil;
      Tensor64 x = random(shape_of(2, 3, v.image), 7);
      auto largest = [](const Numbers& e, int64_t) {
        double most = -INFINITY;
        for (double d : e) most = std::max(most, d);
        return most;
      };
      auto average = [](const Numbers& e, int64_t) { return sum_of(e) / static_cast<double>(e.size()); };
      auto average_padded = [](const Numbers& e, int64_t padded) { return sum_of(e) / static_cast<double>(padded); };
      auto cubes = [](const Numbers& e, int64_t) {
        double sum = 0;
        for (double d : e) sum += std::pow(std::fabs(d), 3);
        return std::cbrt(sum);
      };
      Attributes attributes = v.attributes(true), padded = attributes, cubic = attributes;
      padded.push_back(integer("count_include_pad", 1));
      cubic.push_back(integer("p", 3));
      for (bool symbolic : {false, true}) {
        const std::string what = "window of " + std::to_string(v.kernel.size()) + (symbolic ? ", symbolic" : "");
        expect_near(result("MaxPool", 12, attributes, {x}, symbolic), pooled(v, x, largest), what);
        expect_near(result("AveragePool", 19, attributes, {x}, symbolic), pooled(v, x, average), what);
        expect_near(result("AveragePool", 19, padded, {x}, symbolic), pooled(v, x, average_padded), what);
        expect_near(result("LpPool", 18, cubic, {x}, symbolic), pooled(v, x, cubes), what);

        for (int64_t order : {0, 1}) {
          Attributes ordered = attributes;
          ordered.push_back(integer("storage_order", order));
          auto both = run("MaxPool", 12, ordered, {x}, 2, symbolic);
          ASSERT_TRUE(both) << both.error().to_string();
          const Tensor64 &y = (*both)[0], &indices = (*both)[1];
          const int64_t plane = count_of(v.image);
          for (size_t i = 0; i < y.data.size(); ++i) {
            int64_t at = static_cast<int64_t>(indices.data[i]), in_plane = at % plane;
            if (order == 1) {  // first axis fastest
              Dims index;
              for (int64_t size : v.image) index.push_back(in_plane % size), in_plane /= size;
              in_plane = offset_of(v.image, index);
            }
            EXPECT_EQ(x.data[static_cast<size_t>(at / plane * plane + in_plane)], y.data[i]) << what;
          }
        }
      }
    }
  }
}

// Of ones, every element of the image counts the windows that hold it.
TEST(OnnxSpatial, Col2ImAddsWindowsUp) {
  const Tensor64 image{{2}, {3, 4}, DType::i64}, block{{2}, {2, 3}, DType::i64};
  const Attributes attributes = {ints("pads", {0, 0, 1, 1})};
  expect_near(result("Col2Im", 18, attributes, {{{1, 6, 9}, Numbers(54, 1)}, image, block}),
              {{1, 1, 3, 4}, {1, 2, 3, 2, 2, 4, 6, 4, 2, 4, 6, 4}}, "Col2Im");
  EXPECT_FALSE(run("Col2Im", 18, attributes, {{{1, 6, 8}, Numbers(48, 1)}, image, block}));
}

TEST(OnnxSpatial, DeformConvWithoutOffsetsIsConv) {
  for (const Window& v : kWindows) {
    if (!v.auto_pad.empty()) continue;
    Tensor64 x = random(shape_of(2, 4, v.image), 1), w = random(shape_of(8, 4 / v.groups, v.kernel), 2);
    Tensor64 expected = convolution(v, x, w);
    const Dims places(expected.shape.begin() + 2, expected.shape.end());
    const int64_t taps = count_of(v.kernel), axes = static_cast<int64_t>(v.axes());
    Tensor64 offsets{shape_of(2, 2 * taps * axes, places), {}}, mask{shape_of(2, 2 * taps, places), {}};
    offsets.data.assign(static_cast<size_t>(count_of(offsets.shape)), 0);
    mask.data.assign(static_cast<size_t>(count_of(mask.shape)), 0.5);
    Attributes attributes = v.attributes(false);
    attributes.push_back(integer("offset_group", 2));
    expect_near(result("DeformConv", 19, attributes, {x, w, offsets}, true), expected, "symbolic");
    Tensor64 bias{{8}, Numbers(8, 1)};
    for (double& e : expected.data) e = e / 2 + 1;
    expect_near(result("DeformConv", 22, attributes, {x, w, offsets, bias, mask}), expected, "masked");
  }
}

TEST(OnnxSpatial, RegionsOfInterest) {
  Tensor64 x{{1, 1, 4, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
  Tensor64 rois{{2, 5}, {0, 0, 0, 3, 3, 0, 1, 1, 2, 3}};
  expect_near(result("MaxRoiPool", 22, {ints("pooled_shape", {2, 2})}, {x, rois}),
              {{2, 1, 2, 2}, {5, 7, 13, 15, 9, 10, 13, 14}}, "MaxRoiPool");

  // On a plane the mean over a bin is the value at its centre, however many points are sampled.
  Tensor64 boxes{{2, 4}, {0.5, 0.5, 2.5, 2.5, 1, 0.5, 2, 2.5}}, batch{{2}, {0, 0}, DType::i64};
  const Attributes size = {integer("output_height", 1), integer("output_width", 1)};
  for (int64_t ratio : {0, 1, 3}) {
    Attributes attributes = size;
    attributes.push_back(integer("sampling_ratio", ratio));
    expect_near(result("RoiAlign", 16, attributes, {x, boxes, batch}), {{2, 1, 1, 1}, {5, 5}}, "half pixel");
    expect_near(result("RoiAlign", 10, attributes, {x, boxes, batch}), {{2, 1, 1, 1}, {7.5, 7.5}}, "whole pixel");
  }
}

TEST(OnnxSpatial, UnpoolPutsMaximaBack) {
  Tensor64 x{{1, 1, 2, 2}, {1, 2, 3, 4}}, at{{1, 1, 2, 2}, {5, 7, 13, 15}, DType::i64};
  Tensor64 y = result("MaxUnpool", 11, {ints("kernel_shape", {2, 2}), ints("strides", {2, 2})}, {x, at}, true);
  expect_near(y, {{1, 1, 4, 4}, {0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 3, 0, 4}}, "MaxUnpool");
}

TEST(OnnxNorms, Values) {
  Tensor64 x{{1, 4, 1}, {1, 3, 10, 30}}, two{{2}, {1, 2}}, zeros{{2}, {0, 0}}, four{{4}, {1, 1, 2, 2}};
  Attributes groups = {integer("num_groups", 2), real("epsilon", 0)};
  const Tensor64 expected{{1, 4, 1}, {-1, 1, -2, 2}};
  expect_near(result("GroupNormalization", 18, groups, {x, two, zeros}), expected, "a scale for each group");
  expect_near(result("GroupNormalization", 21, groups, {x, four, {{4}, {0, 0, 0, 0}}}), expected, "for each channel");

  Tensor64 batch{{2, 1, 2}, {1, 3, 5, 7}}, one{{1}, {1}}, none{{1}, {0}};
  auto trained = run("BatchNormalization", 15, {integer("training_mode", 1), real("epsilon", 0), real("momentum", 0.5)},
                     {batch, one, none, {{1}, {2}}, {{1}, {3}}}, 3);
  ASSERT_TRUE(trained) << trained.error().to_string();
  expect_near((*trained)[1], {{1}, {3}}, "running mean");
  expect_near((*trained)[2], {{1}, {4}}, "running variance");
  EXPECT_NEAR((*trained)[0].data[0], -3 / std::sqrt(5.0), 1e-9);

  expect_near(result("LpNormalization", 1, {integer("p", 1)}, {Tensor64{{2, 2}, {0, 0, 1, 3}}}),
              {{2, 2}, {0, 0, 0.25, 0.75}}, "zeros stay");
  Tensor64 y = result("LRN", 13, {integer("size", 2), real("alpha", 2), real("beta", 1)}, {{{1, 3, 1}, {1, 2, 3}}});
  expect_near(y, {{1, 3, 1}, {1.0 / 6, 2.0 / 14, 3.0 / 10}}, "an even size looks one further up");
}

TEST(OnnxQuantized, BlocksAndRows) {
  Tensor64 x{{2, 3}, {1, 2, 3, 4, 5, 6}, DType::f32}, scale{{2, 2}, {1, 0.5, 2, 1}, DType::f32};
  Tensor64 y = result("QuantizeLinear", 21, {integer("block_size", 2), integer("axis", 1)}, {x, scale});
  EXPECT_EQ(y.data, (Numbers{1, 2, 6, 2, 2, 6}));
  y.dtype = DType::u8;
  Tensor64 back = result("DequantizeLinear", 21, {integer("block_size", 2), integer("axis", 1)}, {y, scale}, true);
  EXPECT_EQ(back.data, (Numbers{1, 2, 3, 4, 4, 6}));

  Tensor64 a{{2, 1}, {3, 4}, DType::u8}, b{{1, 2}, {5, 6}, DType::u8}, rows{{2}, {1, 2}, DType::u8};
  Tensor64 columns{{2}, {5, 1}, DType::u8};
  EXPECT_EQ(result("MatMulInteger", 10, {}, {a, b, rows, columns}).data, (Numbers{0, 10, 0, 10}));
}

TEST(OnnxProducts, Shapes) {
  const Tensor64 v = random({3}, 1), m = random({2, 3, 4}, 2), g = random({4, 3}, 3), c = random({2, 1}, 4);
  EXPECT_EQ(result("MatMul", 13, {}, {v, m}).shape, (Dims{2, 4}));
  EXPECT_EQ(result("MatMul", 13, {}, {m, random({4}, 1)}).shape, (Dims{2, 3}));
  EXPECT_EQ(result("MatMul", 13, {}, {v, v}).shape, Dims{});
  Tensor64 y = result("Gemm", 13, {integer("transA", 1), integer("transB", 1), real("alpha", 0.5), real("beta", 2)},
                      {random({3, 2}, 5), g, c});
  EXPECT_EQ(y.shape, (Dims{2, 4}));
  double expected = 2 * c.data[1];
  for (size_t k = 0; k < 3; ++k) expected += 0.5 * random({3, 2}, 5).data[k * 2 + 1] * g.data[2 * 3 + k];
  EXPECT_NEAR(y.data[4 + 2], expected, 1e-9);
}

// A batch, a row or a region less than one leaves results without elements, of the right shape.
TEST(OnnxSpatial, NothingInNothingOut) {
  auto empty = [](Dims shape, DType dtype = DType::f64) { return Tensor64{std::move(shape), {}, dtype}; };
  const Tensor64 x = empty({0, 2, 4, 4}), w = random({2, 2, 3, 3}, 1), two = random({2}, 2),
                 plane = random({1, 2, 4, 4}, 3);
  const Attributes kernel = {ints("kernel_shape", {2, 2})};
  const struct {
    std::string_view op;
    Attributes attributes;
    std::vector<Tensor64> inputs;
    Dims shape;
  } cases[] = {
      {"Conv", {}, {x, w}, {0, 2, 2, 2}},
      {"Conv", {ints("pads", {1, 1, 1, 1})}, {empty({1, 2, 0, 4}), w}, {1, 2, 0, 4}},
      {"ConvTranspose", {ints("strides", {2, 2})}, {x, w}, {0, 2, 9, 9}},
      {"DeformConv", {}, {x, w, empty({0, 18, 2, 2})}, {0, 2, 2, 2}},
      {"MaxPool", kernel, {x}, {0, 2, 3, 3}},
      {"AveragePool", kernel, {x}, {0, 2, 3, 3}},
      {"LpPool", kernel, {x}, {0, 2, 3, 3}},
      {"GlobalMaxPool", {}, {x}, {0, 2, 1, 1}},
      {"MaxUnpool", kernel, {x, empty({0, 2, 4, 4}, DType::i64)}, {0, 2, 5, 5}},
      {"BatchNormalization", {}, {x, two, two, two, two}, {0, 2, 4, 4}},
      {"InstanceNormalization", {}, {x, two, two}, {0, 2, 4, 4}},
      {"GroupNormalization", {integer("num_groups", 1)}, {x, two, two}, {0, 2, 4, 4}},
      {"LayerNormalization", {integer("axis", 1)}, {x, random({2, 4, 4}, 1)}, {0, 2, 4, 4}},
      {"LRN", {integer("size", 3)}, {x}, {0, 2, 4, 4}},
      {"MeanVarianceNormalization", {}, {x}, {0, 2, 4, 4}},
      {"LpNormalization", {}, {x}, {0, 2, 4, 4}},
      {"RoiAlign", {}, {plane, empty({0, 4}), empty({0}, DType::i64)}, {0, 2, 1, 1}},
      {"MaxRoiPool", {ints("pooled_shape", {1, 1})}, {plane, empty({0, 5})}, {0, 2, 1, 1}},
      {"MatMul", {}, {empty({2, 0}), empty({0, 3})}, {2, 3}},
      {"Gemm", {}, {empty({0, 2}), random({2, 3}, 1)}, {0, 3}},
      {"QuantizeLinear", {}, {empty({0, 2}), two}, {0, 2}},
      {"DequantizeLinear", {}, {empty({0, 2}, DType::u8), two}, {0, 2}},
  };
  for (const auto& c : cases) {
    Tensor64 y = result(c.op, 21, c.attributes, c.inputs);
    EXPECT_EQ(y.shape, c.shape) << c.op;
    EXPECT_EQ(static_cast<int64_t>(y.data.size()), count_of(c.shape)) << c.op;
  }
}

TEST(OnnxSpatial, ErrorsAreCoded) {
  const Tensor64 x = random({1, 2, 4, 4}, 1), w = random({2, 2, 3, 3}, 2), flat = random({3}, 3);
  const struct {
    std::string_view op;
    Attributes attributes;
    std::vector<Tensor64> inputs;
    Code code;
  } cases[] = {
      {"Conv", {}, {x}, Code::arity},
      {"Conv", {}, {flat, w}, Code::rank_mismatch},
      {"Conv", {}, {x, random({2, 2, 3}, 1)}, Code::rank_mismatch},
      {"Conv", {ints("strides", {0, 1})}, {x, w}, Code::attribute_invalid},
      {"Conv", {ints("strides", {1})}, {x, w}, Code::attribute_invalid},
      {"Conv", {ints("pads", {-1, 0, 0, 0})}, {x, w}, Code::attribute_invalid},
      {"Conv", {ints("dilations", {int64_t{1} << 62, 1})}, {x, w}, Code::attribute_invalid},
      {"Conv", {integer("group", 0)}, {x, w}, Code::attribute_invalid},
      {"Conv", {integer("group", 2)}, {x, w}, Code::shape_mismatch},
      {"Conv", {text("auto_pad", "SOME")}, {x, w}, Code::attribute_invalid},
      {"Conv", {ints("kernel_shape", {2, 2})}, {x, w}, Code::shape_mismatch},
      {"Conv", {ints("dilations", {3, 3})}, {x, w}, Code::shape_invalid},
      {"Conv", {}, {x, w, flat}, Code::shape_mismatch},
      {"ConvTranspose", {integer("group", -1)}, {x, w}, Code::attribute_invalid},
      {"ConvTranspose", {ints("output_shape", {-4, 4})}, {x, w}, Code::attribute_invalid},
      {"MaxPool", {}, {x}, Code::attribute_invalid},
      {"MaxPool", {ints("kernel_shape", {9, 9})}, {x}, Code::shape_invalid},
      {"AveragePool", {ints("kernel_shape", {0, 1})}, {x}, Code::attribute_invalid},
      {"LpPool", {ints("kernel_shape", {9, 9})}, {x}, Code::shape_invalid},
      {"GlobalMaxPool", {}, {flat}, Code::rank_mismatch},
      {"BatchNormalization", {}, {x, flat, flat, flat, flat}, Code::shape_mismatch},
      {"GroupNormalization", {}, {x, flat, flat}, Code::attribute_invalid},
      {"LRN", {integer("size", 0)}, {x}, Code::attribute_invalid},
      {"LayerNormalization", {integer("axis", 4)}, {x, flat}, Code::axis_out_of_range},
      {"Gemm", {}, {x, w}, Code::rank_mismatch},
      {"MatMul", {}, {Tensor64{{}, {1}}, flat}, Code::rank_mismatch},
      {"QuantizeLinear", {integer("axis", 7)}, {x, flat}, Code::axis_out_of_range},
      {"QuantizeLinear", {integer("block_size", -2)}, {x, flat}, Code::attribute_invalid},
      {"RoiAlign", {}, {x, flat, flat}, Code::shape_mismatch},
      {"MaxRoiPool", {}, {x, random({1, 5}, 1)}, Code::attribute_invalid},
  };
  for (const auto& c : cases) {
    auto got = run(c.op, 21, c.attributes, c.inputs);
    ASSERT_FALSE(got) << c.op << " case " << &c - cases;
    EXPECT_EQ(got.error().code, c.code) << c.op << " case " << &c - cases << ": " << got.error().to_string();
  }
}

}  // namespace
}  // namespace tessera::onnx
