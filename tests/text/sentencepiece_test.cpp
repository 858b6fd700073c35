// SentencePiece models of every kind against the library itself: ids, offsets and texts of generated lines. The models
// are trained here, on a text of this file's making.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <fstream>
#include <random>

#include "base/test_folder.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

namespace tessera::text {
namespace {

constexpr const char* kWords[] = {"the",       "of",    "and",        "tokens", "tokenization", "internationalisation",
                                  "don't",     "we'll", "12",         "345",    "3.14",         "x->y",
                                  "foo(bar);", "Tiếng", "Việt",       "naïve",  "été",          "ﬁ",
                                  "½",         "①",     "Привет",     "мир",    "שלום",         "مرحبا",
                                  "你好",      "世界",  "こんにちは", "नमस्ते",   "UPPER",        "CamelCase",
                                  "a",         "b"};
constexpr const char* kOthers[] = {" ",
                                   "  ",
                                   "   ",
                                   "\t",
                                   "\u00a0",
                                   "\u3000",
                                   "\ufeff",
                                   "\u200b",
                                   "\u0301",
                                   "▁",
                                   "▁▁",
                                   ",",
                                   ".",
                                   "!!!!",
                                   "----",
                                   "👍🏽",
                                   "👨‍👩‍👧",
                                   "\u0007",
                                   "\u0085",
                                   "\ufffd",
                                   "<sep>",
                                   "<think>",
                                   "<s>",
                                   "</s>",
                                   "aaaaaaaaaaaa",
                                   "<0x0A>",
                                   "é",
                                   "e\u0301",
                                   "\U0002F800",
                                   "\U000E0041"};

std::string line_of(std::mt19937& random, size_t most, bool others) {
  std::string line;
  const size_t count = 1 + random() % most;
  for (size_t i = 0; i < count; ++i) {
    if (others && random() % 2 == 0) {
      line += kOthers[random() % std::size(kOthers)];
    } else {
      line += (line.empty() || random() % 3 == 0 ? "" : " ");
      line += kWords[random() % std::size(kWords)];
    }
  }
  return line;
}

TEST(SentencePiece, EqualsTheLibrary) {
  const TestFolder folder;
  std::mt19937 random(7);
  {
    std::ofstream corpus(folder / "corpus.txt");
    for (int i = 0; i < 2000; ++i) corpus << line_of(random, 12, false) << "\n";
  }
  std::vector<std::string> lines;
  for (int i = 0; i < 2000; ++i) lines.push_back(line_of(random, 10, true));
  for (const char* kind :
       {"--model_type=bpe --byte_fallback=true --normalization_rule_name=identity --remove_extra_whitespaces=false",
        "--model_type=bpe --split_digits=true", "--model_type=unigram", "--model_type=unigram --byte_fallback=true",
        "--model_type=unigram --add_dummy_prefix=false", "--model_type=unigram --remove_extra_whitespaces=false",
        "--model_type=unigram --normalization_rule_name=nmt_nfkc_cf",
        "--model_type=unigram --normalization_rule_name=nfkc", "--model_type=unigram --treat_whitespace_as_suffix=true",
        "--model_type=unigram --split_by_whitespace=false",
        "--model_type=unigram --user_defined_symbols=<sep>,the,<think>", "--model_type=word", "--model_type=char",
        "--model_type=bpe --byte_fallback=true --user_defined_symbols=<sep>,the,▁foo"}) {
    SCOPED_TRACE(kind);
    const auto trained = sentencepiece::SentencePieceTrainer::Train(
        fmt::format("--input={} --model_prefix={} --vocab_size=400 --hard_vocab_limit=false --minloglevel=2 "
                    "--num_threads=1 {}",
                    folder / "corpus.txt", folder / "tokenizer", kind));
    ASSERT_TRUE(trained.ok()) << trained.ToString();
    sentencepiece::SentencePieceProcessor theirs;
    ASSERT_TRUE(theirs.Load(folder / "tokenizer.model").ok());
    const auto ours = Tokenizer::load(folder / "tokenizer.model");
    ASSERT_TRUE(ours) << ours.error().to_string();
    for (const std::string& line : lines) {
      const auto wanted = theirs.EncodeAsImmutableProto(line);
      const auto made = ours->encode(line, {.frame = false, .offsets = true});
      ASSERT_TRUE(made) << made.error().to_string();
      std::vector<TokenId> ids;
      std::vector<Span> offsets;
      for (size_t i = 0; i < wanted.pieces_size(); ++i) {
        ids.push_back(static_cast<TokenId>(wanted.pieces(i).id()));
        offsets.push_back({wanted.pieces(i).begin(), wanted.pieces(i).end()});
      }
      ASSERT_EQ(made->ids, ids) << line;
      ASSERT_EQ(made->offsets, offsets) << line;
      std::string text;
      ASSERT_TRUE(theirs.Decode(std::vector<int>(ids.begin(), ids.end()), &text).ok());
      ASSERT_EQ(ours->decode(ids, {.skip_special = false}), repair_utf8(text)) << line;
    }
  }
}

}  // namespace
}  // namespace tessera::text
