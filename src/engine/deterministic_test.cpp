// --deterministic: a sequence's logits are the same bits whoever shares its steps, on any number of threads, and
// however its prompt is cut.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "engine/compiled.h"
#include "engine/decoder.h"
#include "engine/encoder.h"
#include "engine/language.h"
#include "ops/math.h"
#include "tensor/block.h"

namespace tessera::engine {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int64_t>;
using Rows = std::vector<std::vector<float>>;  // the logits of each step of one sequence

const fs::path kShared = "../shared/data";
constexpr int kSteps = 2;

Ids prompt(size_t sequence, int64_t vocabulary) {
  Ids ids(1 + sequence * 29 % 67);
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int64_t>((sequence * 131 + i * 37 + 3) % static_cast<size_t>(vocabulary));
  return ids;
}

std::vector<float> row_of(const Tensor& logits, size_t row) {
  const auto width = static_cast<size_t>(logits.shape()[1]);
  return {logits.as<float>() + row * width, logits.as<float>() + (row + 1) * width};
}

// Prompts in one step, then tokens that depend on nothing but the sequence and the step.
std::vector<Rows> together(Decoder& decoder, size_t first, size_t count, bool at_once) {
  const int64_t vocabulary = decoder.config().vocabulary;
  std::vector<Rows> rows(count);
  std::vector<Segment> segments;
  std::vector<Ids> ids(count);
  for (size_t i = 0; i < count; ++i) {
    ids[i] = prompt(first + i, vocabulary);
    segments.push_back({*decoder.open(), ids[i]});
    if (at_once) continue;
    const auto logits = decoder.feed(segments[i].sequence, ids[i], false);
    EXPECT_TRUE(logits) << logits.error().to_string();
    rows[i].push_back(row_of(*logits, 0));
  }
  for (int step = at_once ? 0 : 1; step <= kSteps; ++step) {
    for (size_t i = 0; i < count && step > 0; ++i) {
      ids[i] = {static_cast<int64_t>((first + i) * 17 + static_cast<size_t>(step) * 71) % vocabulary};
      segments[i].tokens = ids[i];
    }
    const auto logits = decoder.step(segments);
    EXPECT_TRUE(logits) << logits.error().to_string();
    for (size_t i = 0; i < count; ++i) rows[i].push_back(row_of(*logits, i));
  }
  for (const Segment& segment : segments) decoder.close(segment.sequence);
  return rows;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// A text whose beginning another sequence has read already.
void expect_shared_beginning(Decoder& decoder) {
  Ids text(100);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int64_t>((i * 41 + 7) % 500);
  const int first = *decoder.open(text);
  const auto whole = decoder.feed(first, text, false);
  ASSERT_TRUE(whole) << whole.error().to_string();
  const int second = *decoder.open(text);
  EXPECT_EQ(decoder.length(second), 64);  // a page
  const auto rest = decoder.feed(second, std::span(text).subspan(64), false);
  ASSERT_TRUE(rest) << rest.error().to_string();
  EXPECT_TRUE(same_bits(row_of(*whole, 0), row_of(*rest, 0)));
  decoder.close(first);
  decoder.close(second);
}

struct Case {
  const char* model;
  std::string weights = "keep";
  DType cache = DType::f32;
};

TEST(Deterministic, SequencesAreTheSameBitsInAnyBatch) {
  if (!fs::exists(kShared / "stories260k"))
    GTEST_SKIP() << kShared / "stories260k"
                 << " is not here";
  constexpr size_t kSequences = 32;
  const Case cases[] = {{"stories260k"},
                        {"stories260k", "q8_0", DType::i8},
                        {"architectures/gemma2", "bf16", DType::f16},
                        {"architectures/mixtral", "q4_0"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{} {} {}", c.model, c.weights, name(c.cache)));
    const auto source = open_language_model((kShared / c.model).string());
    ASSERT_TRUE(source) << source.error().to_string();
    std::vector<Rows> alone;
    for (const auto& [threads, chunk] : {std::pair<int, int64_t>{1, 512}, {2, 7}}) {
      SCOPED_TRACE(threads);
      const auto decoder = Decoder::make(*source, {.threads = threads,
                                                   .cache = c.cache,
                                                   .weights = c.weights,
                                                   .deterministic = true,
                                                   .context = 128,
                                                   .sequences = kSequences,
                                                   .chunk = chunk});
      ASSERT_TRUE(decoder) << decoder.error().to_string();
      expect_shared_beginning(**decoder);
      if (alone.empty())
        for (size_t i = 0; i < kSequences; ++i) alone.push_back(together(**decoder, i, 1, true)[0]);
      for (size_t batch : {size_t{1}, size_t{8}, kSequences})
        for (bool at_once : {true, false}) {
          if (batch == 1 && threads == 1) continue;
          const size_t first = kSequences - batch;
          const std::vector<Rows> rows = together(**decoder, first, batch, at_once);
          int differ = 0;
          for (size_t i = 0; i < batch; ++i)
            for (size_t step = 0; step < rows[i].size(); ++step)
              differ += !same_bits(rows[i][step], alone[first + i][step]);
          EXPECT_EQ(differ, 0) << "of a batch of " << batch << (at_once ? "" : ", prompts in parts");
        }
    }
  }
}

TEST(Deterministic, VectorsAreTheSameBitsBesideAnyTexts) {
  const auto path = kShared / "architectures" / "st_bert";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not here";
  const auto source = open_language_model(path.string());
  ASSERT_TRUE(source) << source.error().to_string();
  std::vector<EncoderText> texts;
  for (size_t i = 0; i < 40; ++i) texts.push_back({prompt(i, source->config.vocabulary)});
  for (EncoderText& text : texts) text.ids.resize(std::min<size_t>(text.ids.size(), 30));
  const auto encoder = Encoder::make(*source, {.weights = "q8_0", .deterministic = true});
  ASSERT_TRUE(encoder) << encoder.error().to_string();
  const auto all = (*encoder)->embed(texts, transformer::Pooling::mean, true);
  ASSERT_TRUE(all) << all.error().to_string();
  for (size_t i : {0, 1, 17, 39}) {
    const auto alone = (*encoder)->embed({&texts[i], 1}, transformer::Pooling::mean, true);
    ASSERT_TRUE(alone) << alone.error().to_string();
    EXPECT_TRUE(same_bits(row_of(*alone, 0), row_of(*all, i))) << "text " << i;
  }
}

// Long sums are cut into blocks, and few rows take other ways through memory than many.
TEST(Deterministic, RowsOfProductsAreTheSameBitsAmongAnyNumber) {
  constexpr int64_t kInputs = 2816, kOutputs = 150, kRows = 70;
  const auto waves = [](Dims shape, double step) {
    Tensor t = *Tensor::make(DType::f32, std::move(shape));
    for (int64_t i = 0; i < t.count(); ++i)
      t.as<float>()[i] = static_cast<float>(std::sin(step * static_cast<double>(i * i % 10007)));
    return t;
  };
  const Tensor x = waves({kRows, kInputs}, 0.37), w = waves({kOutputs, kInputs}, 0.7);
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k}) {
    SCOPED_TRACE(name(dtype));
    ir::Graph graph(std::make_shared<ir::Context>());
    ir::Builder b(graph);
    const ir::X in = b.input(graph.context().tensor(DType::f32, {b.dims().symbol("rows"), kInputs}), "x");
    const ir::X y = b.add1(ops::linear_op, {in, decoded(b.constant(*convert_weights(w, dtype))), {&b, ir::kNoValue}});
    ASSERT_TRUE(b.ok()) << b.status().error().to_string();
    graph.outputs = {y.id};
    graph.output_names = {graph.context().name("y")};
    std::vector<std::vector<float>> first[2];
    for (auto& rows : first) rows.resize(kRows);
    for (const auto& [threads, exact] : {std::pair(1, false), {2, false}, {1, true}, {2, true}}) {
      CompileOptions options;
      options.pipeline.exact_activations = exact;
      options.pool = std::make_shared<ThreadPool>(threads);
      options.pipeline.deterministic = true;
      const auto compiled = compile(graph.clone(), options);
      ASSERT_TRUE(compiled) << compiled.error().to_string();
      for (int64_t rows : {1, 2, 3, 5, 8, 17, 32, 70}) {
        ExecuteReport report;
        const Tensor part = Tensor::borrow(DType::f32, {rows, kInputs}, x.data());
        const auto got = (*compiled)->run(std::vector<Value>{Value(part)}, {}, report);
        ASSERT_TRUE(got) << got.error().to_string();
        for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
          const std::vector<float> values = row_of(*(*got)[0].tensor(), row);
          std::vector<float>& before = first[exact ? 1 : 0][row];
          if (before.empty()) before = values;
          EXPECT_TRUE(same_bits(values, before)) << "row " << row << " of " << rows << ", " << threads << " threads";
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::engine
