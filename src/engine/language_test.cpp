// Models of many architectures against values that were computed from their published definitions.
#include "engine/language.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/test_folder.h"
#include "engine/encoder.h"
#include "engine/generate.h"
#include "engine/quantize.h"
#include "formats/npy.h"

namespace tessera::engine {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int64_t>;

const fs::path kData = "../shared/data";

nlohmann::json read_expected(const fs::path& folder) {
  const auto text = read_file((folder / "expected.json").string(), 1 << 20);
  return text ? nlohmann::json::parse(*text) : nlohmann::json();
}

// The folder, and the GGUF file in it where there is one.
std::vector<std::string> forms(const fs::path& folder) {
  std::vector<std::string> list = {folder.string()};
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".gguf") list.push_back(entry.path().string());
  return list;
}

void expect_near(const Tensor& got, const float* wanted, int64_t count, double tolerance) {
  ASSERT_EQ(got.count(), count);
  double worst = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double error = std::fabs(static_cast<double>(got.as<float>()[i]) - wanted[i]);
    worst = error > worst || std::isnan(error) ? error : worst;
  }
  EXPECT_LE(worst, tolerance);
}

std::unique_ptr<Decoder> decoder_of(const transformer::Source& source, DecoderOptions options = {}) {
  if (options.context == 0) options.context = std::min<int64_t>(source.config.context, 256);
  auto decoder = Decoder::make(source, options);
  EXPECT_TRUE(decoder) << decoder.error().to_string();
  return decoder ? std::move(*decoder) : nullptr;
}

std::vector<GenerateRequest> greedy_requests(const nlohmann::json& expected) {
  std::vector<GenerateRequest> requests;
  for (const auto& c : expected["greedy"])
    requests.push_back(
        {.prompt = c["prompt_ids"].get<Ids>(), .max_tokens = static_cast<int64_t>(c["greedy_ids"].size())});
  return requests;
}

void check_decoder(const fs::path& folder, const std::string& form, double tolerance) {
  SCOPED_TRACE(form);
  const nlohmann::json expected = read_expected(folder);
  const auto source = open_language_model(form);
  ASSERT_TRUE(source) << source.error().to_string();
  const auto decoder = decoder_of(*source, {.exact = true, .sequences = 3});
  ASSERT_NE(decoder, nullptr);
  const auto sequence = decoder->open();
  const Ids ids = expected["ids"].get<Ids>();
  const auto logits = decoder->feed(*sequence, ids, true);
  ASSERT_TRUE(logits) << logits.error().to_string();
  decoder->close(*sequence);
  const auto wanted = read_npy((folder / "expected_logits.npy").string());
  ASSERT_TRUE(wanted);
  expect_near(*logits, wanted->as<float>(), wanted->count(), tolerance);

  const auto requests = greedy_requests(expected);
  const auto results = generate(*decoder, requests);
  ASSERT_TRUE(results) << results.error().to_string();
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ((*results)[i].tokens, expected["greedy"][i]["greedy_ids"].get<Ids>()) << "continuation " << i;
}

void check_encoder(const fs::path& folder, const std::string& form) {
  SCOPED_TRACE(form);
  const nlohmann::json expected = read_expected(folder);
  const auto source = open_language_model(form);
  ASSERT_TRUE(source) << source.error().to_string();
  const auto made = Encoder::make(*source, {});
  ASSERT_TRUE(made) << made.error().to_string();
  Encoder& encoder = **made;
  std::vector<EncoderText> texts;
  for (size_t i = 0; i < expected["input_ids"].size(); ++i) {
    texts.emplace_back();
    for (size_t j = 0; j < expected["input_ids"][i].size(); ++j)
      if (expected["attention_mask"][i][j] == 1) texts.back().ids.push_back(expected["input_ids"][i][j]);
  }
  const auto hidden = encoder.embed(texts, transformer::Pooling::none, false);
  ASSERT_TRUE(hidden) << hidden.error().to_string();
  const auto array = [&](const std::string& name) {
    auto tensor = read_npy((folder / ("expected_" + name + ".npy")).string());
    EXPECT_TRUE(tensor) << name;
    return *tensor;
  };
  const Tensor wanted = array("last_hidden_state");
  int64_t row = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto tokens = static_cast<int64_t>(texts[i].ids.size()), width = wanted.shape()[2];
    const Tensor part = Tensor::borrow(DType::f32, {tokens, width}, hidden->as<float>() + row * width);
    expect_near(part, wanted.as<float>() + static_cast<int64_t>(i) * wanted.shape()[1] * width, part.count(), 2e-4);
    row += tokens;
  }
  const auto compare = [&](const Result<Tensor>& got, const std::string& name) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(got) << got.error().to_string();
    const Tensor right = array(name);
    expect_near(*got, right.as<float>(), right.count(), 2e-4);
  };
  compare(encoder.embed(texts, transformer::Pooling::mean, false), "mean_pooled");
  compare(encoder.embed(texts, transformer::Pooling::mean, true), "mean_pooled_normalized");
  compare(encoder.embed(texts, transformer::Pooling::cls, false), "first_token");
  if (encoder.config().pooler && expected["arrays"].contains("pooler_output"))
    compare(encoder.pooled(texts), "pooler_output");
  if (expected.contains("pair")) {
    const EncoderText pair{expected["pair"]["input_ids"][0].get<Ids>(),
                           expected["pair"]["token_type_ids"][0].get<Ids>()};
    compare(encoder.embed({&pair, 1}, transformer::Pooling::none, false), "pair_last_hidden_state");
  }
  if (expected["arrays"].contains("sentence_embedding") && form == folder.string()) {
    EXPECT_TRUE(source->normalised);
    compare(encoder.embed(texts, source->pooling, source->normalised), "sentence_embedding");
  }
}

TEST(LanguageModels, AgreeWithTheirDefinitions) {
  if (!fs::exists(kData / "architectures"))
    GTEST_SKIP() << kData / "architectures"
                 << " is not here";
  for (const auto& entry : fs::directory_iterator(kData / "architectures")) {
    if (!entry.is_directory()) continue;
    for (const std::string& form : forms(entry.path())) {
      if (read_expected(entry.path()).contains("greedy"))
        check_decoder(entry.path(), form, 2e-4);
      else
        check_encoder(entry.path(), form);
    }
  }
}

// The logits of one model in every type that files have, against those of its decoded weights.
TEST(LanguageModels, QuantizedFilesComeNear) {
  const fs::path folder = kData / "gguf-quants";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const Ids ids = read_expected(folder)["ids"].get<Ids>();
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    ++files;
    const auto source = open_language_model(entry.path().string());
    ASSERT_TRUE(source) << source.error().to_string();
    const auto wanted = read_npy(fs::path(entry.path()).replace_extension("logits.npy").string());
    ASSERT_TRUE(wanted) << wanted.error().to_string();
    for (const bool exact : {true, false}) {
      const auto decoder = decoder_of(*source, {.exact = exact});
      ASSERT_NE(decoder, nullptr);
      const auto sequence = decoder->open();
      const auto logits = decoder->feed(*sequence, ids, false);
      ASSERT_TRUE(logits) << logits.error().to_string();
      double off = 0, all = 0, product = 0, ours = 0;
      const float* last = logits->as<float>() + logits->count() - wanted->count();
      for (int64_t i = 0; i < wanted->count(); ++i) {
        const double x = static_cast<double>(last[i]), y = static_cast<double>(wanted->as<float>()[i]);
        off += (x - y) * (x - y);
        all += y * y;
        ours += x * x;
        product += x * y;
      }
      EXPECT_LE(std::sqrt(off / all), exact ? 1e-3 : 2e-2) << entry.path().filename();
      EXPECT_GE(product / std::sqrt(all * ours), 0.999) << entry.path().filename();
    }
  }
  EXPECT_EQ(files, 15);
}

double relative(const Tensor& got, const Tensor& wanted) {
  double off = 0, all = 0;
  for (int64_t i = 0; i < wanted.count(); ++i) {
    const double x = static_cast<double>(got.as<float>()[i]), y = static_cast<double>(wanted.as<float>()[i]);
    off += (x - y) * (x - y);
    all += y * y;
  }
  return std::sqrt(off / all);
}

// Weights that are rounded as they are loaded: what is held, and how near the logits stay. GPT-2's matrices lie the
// other way round; experts come one by one.
TEST(LanguageModels, TakeWeightsInOtherTypes) {
  if (!fs::exists(kData / "architectures"))
    GTEST_SKIP() << kData / "architectures"
                 << " is not here";
  struct Case {
    std::string weights, told;
    double most;  // of the bytes of f32
    double error;
  };
  const Case cases[] = {{"keep", "f32", 1, 0},        {"bf16", "bf16", 0.53, 3e-2}, {"F16", "f16", 0.53, 3e-3},
                        {"q8_0", "q8_0", 0.31, 6e-2}, {"q4_0", "q4_0", 0.21, 0.6},  {"q4_k_m", "q5_0", 0.25, 0.4}};
  for (const char* model : {"gpt2", "qwen2_moe", "gemma2/gemma2-f32.gguf"}) {
    const std::string path = (kData / "architectures" / model).string();
    const auto source = open_language_model(path);
    ASSERT_TRUE(source) << source.error().to_string();
    const Ids ids = {3, 41, 59, 26, 53, 58, 97, 93};
    std::optional<Tensor> before;
    int64_t bytes = 0;
    for (const Case& c : cases) {
      SCOPED_TRACE(path + " " + c.weights);
      const auto decoder = decoder_of(*source, {.weights = c.weights, .exact = c.weights == "keep"});
      ASSERT_NE(decoder, nullptr);
      const auto logits = decoder->feed(*decoder->open(), ids, true);
      ASSERT_TRUE(logits) << logits.error().to_string();
      if (!before) {
        before = *logits;
        bytes = decoder->weight_bytes();
      }
      EXPECT_EQ(decoder->cost().weights, c.told);
      EXPECT_LE(static_cast<double>(decoder->weight_bytes()), c.most * static_cast<double>(bytes));
      EXPECT_LE(relative(*logits, *before), c.error);
      if (!path.ends_with(".gguf") || c.weights == "keep") continue;
      // A file that `quantize` wrote holds the very same weights.
      TestFolder folder;
      ASSERT_TRUE(quantize(path, folder / "small.gguf", {.recipe = c.weights}));
      const auto small = open_language_model(folder / "small.gguf");
      ASSERT_TRUE(small) << small.error().to_string();
      const auto other = decoder_of(*small);
      const auto same = other->feed(*other->open(), ids, true);
      ASSERT_TRUE(same) << same.error().to_string();
      EXPECT_EQ(relative(*same, *logits), 0);
    }
  }
  const auto source = open_language_model((kData / "architectures/st_bert").string());
  ASSERT_TRUE(source);
  const EncoderText text{{2, 7, 8, 9, 3}};
  const auto plain = *Encoder::make(*source, {}), rounded = *Encoder::make(*source, {.weights = "q8_0"});
  EXPECT_EQ(rounded->cost().weights, "q8_0");
  EXPECT_LT(rounded->weight_bytes(), plain->weight_bytes() * 2 / 3);
  EXPECT_LT(relative(*rounded->embed({&text, 1}, transformer::Pooling::none, false),
                     *plain->embed({&text, 1}, transformer::Pooling::none, false)),
            2e-2);
  EXPECT_EQ(
      Decoder::make(*open_language_model((kData / "architectures/gpt2").string()), {.weights = "q9"}).error().code,
      Code::usage);
}

TEST(LanguageModels, NewSpellingsMeanTheSame) {
  if (!fs::exists(kData / "architectures"))
    GTEST_SKIP() << kData / "architectures"
                 << " is not here";
  for (const std::string name : {"llama31", "modernbert"}) {
    const fs::path folder = kData / "architectures" / name;
    TestFolder copy;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() != ".gguf" && entry.path().filename() != "config.json")
        fs::copy(entry.path(), copy / entry.path().filename().string());
    fs::copy(folder / "config_v5.json", copy / "config.json");
    if (name == "llama31")
      check_decoder(copy.path(), copy.path(), 2e-4);
    else
      check_encoder(copy.path(), copy.path());
  }
}

TEST(LanguageModels, StoriesInEveryWayOfReading) {
  const fs::path folder = kData / "stories260k";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here";
  for (const std::string& form : forms(folder)) check_decoder(folder, form, 1e-4);
  const nlohmann::json expected = read_expected(folder);
  const auto source = open_language_model(folder.string());
  ASSERT_TRUE(source);
  const auto wanted = read_npy((folder / "expected_logits.npy").string());
  for (int64_t chunk : {1, 3, 7, 64}) {
    SCOPED_TRACE(chunk);
    const auto decoder = decoder_of(*source, {.sequences = 3, .chunk = chunk});
    const auto sequence = decoder->open();
    const auto logits = decoder->feed(*sequence, expected["ids"].get<Ids>(), true);
    ASSERT_TRUE(logits) << logits.error().to_string();
    expect_near(*logits, wanted->as<float>(), wanted->count(), 1e-4);
    decoder->close(*sequence);
    for (const auto& request : greedy_requests(expected)) {
      const auto alone = generate(*decoder, {&request, 1});
      ASSERT_TRUE(alone);
      EXPECT_EQ((*alone)[0].finish, Finish::length);
    }
    const auto together = generate(*decoder, greedy_requests(expected));
    ASSERT_TRUE(together);
    for (size_t i = 0; i < together->size(); ++i)
      EXPECT_EQ((*together)[i].tokens, expected["greedy"][i]["greedy_ids"].get<Ids>());
  }
}

// Caches of narrower types: what they take, known before they are made, and how near the results stay.
TEST(LanguageModels, CacheInOtherTypes) {
  if (!fs::exists(kData / "stories260k"))
    GTEST_SKIP() << kData / "stories260k"
                 << " is not here";
  for (const char* model : {"stories260k", "architectures/gemma2", "architectures/gpt2"}) {
    const auto source = open_language_model((kData / model).string());
    ASSERT_TRUE(source) << source.error().to_string();
    const transformer::Config& c = source->config;
    Ids ids(100);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(3 + i * 37 % 500);
    std::optional<Tensor> wanted;
    const auto rows = 2 * static_cast<int64_t>(c.layers.size()) * c.groups * 3 * 128;  // heads of tokens
    for (const auto& [type, bytes, error] : {std::tuple{DType::f32, 4 * c.head_width, 0.0},
                                             {DType::f16, 2 * c.head_width, 3e-3},
                                             {DType::bf16, 2 * c.head_width, 2e-2},
                                             {DType::i8, c.head_width + 4, 3e-2}}) {
      SCOPED_TRACE(fmt::format("{} {}", model, name(type)));
      const auto decoder = decoder_of(*source, {.cache = type, .context = 128, .sequences = 3, .chunk = 33});
      ASSERT_NE(decoder, nullptr);
      EXPECT_EQ(decoder->cache_bytes(), rows * bytes);
      EXPECT_EQ(decoder->statistics().host_steps, 0);
      const auto logits = decoder->feed(*decoder->open(), ids, true);
      ASSERT_TRUE(logits) << logits.error().to_string();
      if (!wanted) wanted = *logits;
      EXPECT_LE(relative(*logits, *wanted), error);
      // Extending what is cached is the same as reading it all.
      const int two = *decoder->open();
      ASSERT_TRUE(decoder->feed(two, std::span(ids).subspan(0, 99), false));
      const auto last = decoder->feed(two, std::span(ids).subspan(99), false);
      ASSERT_TRUE(last);
      expect_near(*last, logits->as<float>() + 99 * c.vocabulary, c.vocabulary, 1e-4);
    }
  }
}

// The same bits whoever shares the step, and from keys that another sequence computed.
TEST(LanguageModels, SequencesDoNotDependOnEachOther) {
  const fs::path folder = kData / "stories260k";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const auto source = open_language_model(folder.string());
  ASSERT_TRUE(source);
  const auto decoder = decoder_of(*source, {.sequences = 4});
  Ids long_prompt(150);
  for (size_t i = 0; i < long_prompt.size(); ++i) long_prompt[i] = static_cast<int64_t>(3 + i * 37 % 500);
  const auto first = decoder->open(long_prompt);
  EXPECT_EQ(decoder->length(*first), 0);
  const auto alone = decoder->feed(*first, long_prompt, false);
  ASSERT_TRUE(alone);
  const auto second = decoder->open(long_prompt);
  EXPECT_EQ(decoder->length(*second), 128);  // two pages
  const auto shared = decoder->feed(*second, std::span(long_prompt).subspan(128), false);
  ASSERT_TRUE(shared);
  expect_near(*shared, alone->as<float>(), alone->count(), 1e-5);
  decoder->close(*first);
  decoder->close(*second);
  // All pages can be had again.
  std::vector<int> open;
  for (int i = 0; i < 4; ++i) {
    Ids ids(256, i + 3);
    open.push_back(*decoder->open());
    ASSERT_TRUE(decoder->feed(open.back(), ids, false));
  }
  const Ids one = {5};
  const Segment segment{open[0], one};
  const auto full = decoder->step({&segment, 1});
  ASSERT_FALSE(full);
  EXPECT_NE(full.error().message.find("257 tokens pass the context of 256"), std::string::npos);
}

TEST(LanguageModels, EndAtTheContext) {
  const fs::path folder = kData / "stories260k";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const auto source = open_language_model(folder.string());
  const auto decoder = decoder_of(*source, {.context = 20});
  GenerateRequest request{.prompt = {1, 403, 407, 261, 378}, .max_tokens = 100};
  const auto result = generate(*decoder, {&request, 1});
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ((*result)[0].tokens.size(), 16u);
  EXPECT_EQ((*result)[0].finish, Finish::length);
  request.prompt.assign(21, 5);
  EXPECT_EQ(generate(*decoder, {&request, 1}).error().code, Code::value_invalid);
  for (int64_t context : {int64_t{1} << 40, INT64_MAX})
    EXPECT_EQ(Decoder::make(*source, {.context = context}).error().code, Code::out_of_memory);
}

}  // namespace
}  // namespace tessera::engine
