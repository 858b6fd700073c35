#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <filesystem>

#include "base/test_folder.h"
#include "text/normalizer.h"
#include "text/scanners.h"

namespace tessera::text {
namespace {

using Ids = std::vector<TokenId>;

// A tokenizer.json of these parts.
std::string json(const std::string& model, const std::string& parts = "") {
  return "{\"version\": \"1.0\", " + parts + (parts.empty() ? "" : ", ") + "\"model\": {" + model + "}}";
}

constexpr const char* kByteModel =
    R"("type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġab": 4, "Ã": 5, "©": 6, "<|x|>": 7, "c": 8},
       "merges": ["a b", "Ġ ab"])";
constexpr const char* kByteParts =
    R"("added_tokens": [{"id": 7, "content": "<|x|>", "special": true}],
       "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"})";

struct Expected {
  const char* model;
  const char* parts;
  const char* text;
  Ids ids;
  std::vector<Span> offsets;
};

TEST(Tokenizer, EncodesWithOffsets) {
  constexpr const char* words =
      R"("type": "WordPiece", "unk_token": "?", "vocab": {"?": 0, "un": 1, "##able": 2, "!": 3, "u": 4})";
  constexpr const char* pieces =
      R"("type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["▁a", -1], ["▁", -2], ["b", -2.5], ["ab", -9]])";
  constexpr const char* fallback =
      R"("type": "BPE", "unk_token": "?", "fuse_unk": true, "vocab": {"?": 0, "x": 1, "yy": 2, "y": 3}, "merges": ["y y"])";
  const Expected cases[] = {
      {kByteModel, kByteParts, "ab ab", {2, 4}, {{0, 2}, {2, 5}}},
      {kByteModel, kByteParts, "é<|x|>ab", {5, 6, 7, 2}, {{0, 2}, {0, 2}, {2, 7}, {7, 9}}},
      {words,
       R"("normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"})",
       " Ünable! xyz",
       {1, 2, 3, 0},
       {{1, 4}, {4, 8}, {8, 9}, {10, 13}}},
      {pieces, R"("pre_tokenizer": {"type": "Metaspace"})", "a b", {1, 2, 3}, {{0, 1}, {1, 2}, {2, 3}}},
      {fallback, R"("normalizer": {"type": "NFC"})", "xééyyy", {1, 0, 2, 3}, {{0, 1}, {1, 5}, {5, 7}, {7, 8}}},
      {R"("type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "to": 1, "12": 2})",
       R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, {"type": "Digits"}]})",
       "to12, to",
       {1, 2, 0, 1},
       {{0, 2}, {2, 4}, {4, 5}, {6, 8}}},
  };
  for (const Expected& c : cases) {
    const auto tokenizer = Tokenizer::from_json(json(c.model, c.parts));
    ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
    const auto encoding = tokenizer->encode(c.text, {.offsets = true});
    ASSERT_TRUE(encoding) << encoding.error().to_string();
    EXPECT_EQ(encoding->ids, c.ids) << c.text;
    EXPECT_EQ(encoding->offsets, c.offsets) << c.text;
  }
}

// As CLIP has it.
TEST(Tokenizer, MarksOfWordEndsAreBlanksInTexts) {
  const auto tokenizer = Tokenizer::from_json(json(
      R"("type": "BPE", "end_of_word_suffix": "</w>", "vocab": {"a": 0, "b</w>": 1, "ab</w>": 2, "a</w>": 3}, "merges": ["a b</w>"])",
      R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"})"));
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  const auto ids = tokenizer->encode_ids("ab");
  ASSERT_TRUE(ids);
  EXPECT_EQ(*ids, Ids{2});
  EXPECT_EQ(tokenizer->decode(Ids{2, 3, 1}), "ab a b ");
}

TEST(Tokenizer, StreamsWholeCharacters) {
  const auto tokenizer = Tokenizer::from_json(json(kByteModel, kByteParts));
  ASSERT_TRUE(tokenizer);
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.push(5), "");
  EXPECT_EQ(stream.push(6), "é");
  EXPECT_EQ(stream.push(7), "");  // special
  EXPECT_EQ(stream.push(4), " ab");
  EXPECT_EQ(stream.push(5), "");
  EXPECT_EQ(stream.push(0),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(stream.push(5), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(tokenizer->decode(Ids{5, 6, 7, 4, 5, 0, 5}),
            "é ab\xEF\xBF\xBD"
            "a\xEF\xBF\xBD");
  EXPECT_EQ(tokenizer->decode(Ids{-1, 99, 2}), "ab");
}

TEST(Tokenizer, ReadsInvalidTextAsReplacements) {
  const auto tokenizer = Tokenizer::from_json(json(kByteModel, kByteParts));
  ASSERT_TRUE(tokenizer);
  const auto encoding = tokenizer->encode(
      "a\xE4\xBD"
      "b\xFF",
      {.offsets = true});
  ASSERT_TRUE(encoding);
  EXPECT_EQ(encoding->ids, (Ids{0, 1}));  // the bytes of U+FFFD are no tokens of this vocabulary
  EXPECT_EQ(encoding->offsets, (std::vector<Span>{{0, 1}, {3, 4}}));
}

TEST(Tokenizer, RefusesFilesThatContradictThemselves) {
  const std::pair<std::string, Code> cases[] = {
      {"{", Code::file_malformed},
      {"[]", Code::file_malformed},
      {json(R"("type": "Magic")"), Code::unsupported_feature},
      {json(R"("type": "BPE", "vocab": {"a": 0}, "merges": ["a b"])"), Code::tokenizer_invalid},
      {json(R"("type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"])"), Code::tokenizer_invalid},
      {json(R"("type": "BPE", "vocab": {"a": 0}, "merges": ["a"])"), Code::file_malformed},
      {json(R"("type": "BPE", "vocab": {"a": -1}, "merges": [])"), Code::file_malformed},
      {json(R"("type": "BPE", "vocab": {"a": 99999999999}, "merges": [])"), Code::tokenizer_invalid},
      {json(R"("type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": [])"), Code::tokenizer_invalid},
      {json(R"("type": "BPE", "dropout": 0.1, "vocab": {"a": 0}, "merges": [])"), Code::unsupported_feature},
      {json(R"("type": "Unigram", "unk_id": 5, "vocab": [["a", 0]])"), Code::tokenizer_invalid},
      {json(kByteModel, R"("normalizer": {"type": "Sideways"})"), Code::unsupported_feature},
      {json(kByteModel, R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"}})"),
       Code::unsupported_feature},
      {json(kByteModel, R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}],
                            "pair": [], "special_tokens": {}})"),
       Code::tokenizer_invalid},
  };
  for (const auto& [text, code] : cases) {
    const auto tokenizer = Tokenizer::from_json(text);
    ASSERT_FALSE(tokenizer) << text;
    EXPECT_EQ(tokenizer.error().code, code) << text << "\n" << tokenizer.error().to_string();
  }
  std::string deep = R"({"type": "NFC"})";
  for (int i = 0; i < 200; ++i) deep = R"({"type": "Sequence", "normalizers": [)" + deep + "]}";
  EXPECT_FALSE(Tokenizer::from_json(json(kByteModel, "\"normalizer\": " + deep)));
}

// A word of a million letters, and replacements of each by much.
TEST(Tokenizer, BoundsTimeAndMemory) {
  const auto bpe =
      Tokenizer::from_json(json(R"("type": "BPE", "vocab": {"a": 0, "aa": 1, "aaaa": 2}, "merges": ["a a", "aa aa"])"));
  ASSERT_TRUE(bpe);
  EXPECT_EQ(bpe->encode_ids(std::string(1 << 20, 'a'))->size(), 1u << 18);
  const std::string much(100000, 'x');
  const auto replaced = Tokenizer::from_json(
      json(kByteModel, R"("normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": ")" + much + "\"}"));
  ASSERT_TRUE(replaced);
  const auto encoding = replaced->encode(std::string(1 << 20, 'a'));
  ASSERT_FALSE(encoding);
  EXPECT_EQ(encoding.error().code, Code::out_of_memory);
  // The same in many steps, each of which makes little of what it gets.
  std::string steps;
  for (int i = 0; i < 30; ++i)
    steps +=
        std::string(i > 0 ? "," : "") + R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"})";
  const auto grown = Tokenizer::from_json(
      json(kByteModel, "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [" + steps + "]}"));
  ASSERT_TRUE(grown);
  const auto more = grown->encode("aaa");
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::out_of_memory);
}

// The hand-written scanners cut as PCRE2 cuts with the same expression.
TEST(Tokenizer, ScannersEqualTheirExpressions) {
  const std::pair<std::string_view, Scanner> scanners[] = {{kGpt2Expression, scan_gpt2},
                                                           {kLlama3Expression, scan_llama3},
                                                           {kQwen2Expression, scan_qwen2},
                                                           {kO200kExpression, scan_o200k}};
  constexpr std::string_view atoms[] = {"a",
                                        "B",
                                        "'",
                                        "s",
                                        "ll",
                                        "VE",
                                        " ",
                                        "  ",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "1",
                                        "23",
                                        "４",
                                        ".",
                                        "!?",
                                        "/",
                                        "é",
                                        "É",
                                        "e\xCC\x81",
                                        "中",
                                        "ǅ",
                                        "ʰ",
                                        "\xC2\xA0",
                                        "\xE3\x80\x80",
                                        "\xC2\x85",
                                        "\xEF\xBB\xBF",
                                        "😀",
                                        "Ⅷ",
                                        "\xF3\xA0\x84\x80",
                                        "\xF0\x90\xB5\x90",
                                        "_",
                                        "ſ"};
  uint32_t state = 1;
  for (const auto& [expression, scanner] : scanners) {
    const auto compiled = Pattern::compiled_regex(expression);
    ASSERT_TRUE(compiled) << compiled.error().to_string();
    for (int round = 0; round < 3000; ++round) {
      std::string text;
      for (int n = 0; n < 12; ++n) {
        state = state * 1664525 + 1013904223;
        text += atoms[(state >> 16) % std::size(atoms)];
      }
      Matcher matcher(*compiled, text);
      Span match;
      for (size_t at = 0; at < text.size();) {
        const auto found = matcher.next(match);
        ASSERT_TRUE(found && *found) << text;
        ASSERT_EQ(match.begin, at) << text;
        ASSERT_EQ(match.end, scanner(text, at)) << '\'' << text << "' at " << at << " by " << expression;
        at = match.end;
      }
    }
  }
}

TEST(Tokenizer, TranslatesOniguruma) {
  // Expression, text, the matches joined by '|'.
  constexpr std::array<const char*, 3> cases[] = {
      {R"([^(\s|[.,!?])]+)", "ab.c(d|e f", "ab|c|d|e|f"},
      {R"([\w&&[^\d_]]+)", "ab12_c", "ab|c"},
      {R"(\h+)", "xyz1aFg", "1aF"},
      {R"(\d{2}+)", "12345", "1234"},
      {R"((?i:ab)c)", "ABcabCAbc", "ABc|Abc"},
      {R"([[:alpha:]-]+)", "a-b 1", "a-b"},
      {R"(\p{^L}+)", "ab12", "12"},
      {R"(a{,2}b)", "aab", "aab"},
  };
  for (const auto& [expression, text, wanted] : cases) {
    const auto pattern = Pattern::regex(expression);
    ASSERT_TRUE(pattern) << pattern.error().to_string();
    Matcher matcher(*pattern, text);
    std::string matches;
    Span match;
    while (*matcher.next(match))
      matches += (matches.empty() ? "" : "|") + std::string(text).substr(match.begin, match.end - match.begin);
    EXPECT_EQ(matches, wanted) << expression;
  }
}

// The encoders of ../shared carry texts with the ids of their tokenizer.json.
TEST(Tokenizer, EncodersOfSharedData) {
  const std::string folder = "../shared/data/architectures/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  for (const std::string name : {"bert", "st_bert", "roberta", "mpnet", "modernbert"}) {
    const auto tokenizer = Tokenizer::load(folder + name);
    ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
    simdjson::dom::parser parser;
    simdjson::dom::element expected;
    ASSERT_EQ(parser.load(folder + name + "/expected.json").get(expected), simdjson::SUCCESS);
    for (const auto item : expected["texts"].get_array()) {
      const std::string text{item["text"].get_string().value()};
      Ids ids;
      for (const auto id : item["ids"].get_array()) ids.push_back(static_cast<TokenId>(id.get_int64().value()));
      const auto encoding = tokenizer->encode(text);
      ASSERT_TRUE(encoding);
      EXPECT_EQ(encoding->ids, ids) << name << ": " << text;
    }
  }
}

}  // namespace
}  // namespace tessera::text
