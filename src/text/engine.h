// What differs between kinds of tokenizers: text to tokens and back, without the model's frame around them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"

namespace tessera::text {

class Engine {
 public:
  virtual ~Engine() = default;
  // `text` is valid UTF-8. Spans are of it, and only right where `offsets` asks for them.
  struct Request {
    std::string_view text;
    bool parse_special;
    bool offsets;
  };
  virtual Status encode(const Request& request, std::vector<ModelToken>& out) const = 0;
  // The bytes that the tokens stand for; special ones have been left out already.
  virtual std::string decode(const std::vector<uint32_t>& ids) const = 0;
  virtual size_t size() const = 0;
  virtual std::string_view token(uint64_t id) const = 0;
  virtual uint32_t find(std::string_view token) const = 0;
  virtual bool is_special(uint64_t id) const = 0;
  virtual std::string_view kind() const = 0;
  virtual std::optional<uint32_t> unknown() const = 0;
};

// The pipeline of tokenizer.json: added tokens, normalizer, pre-tokenizer, model, decoder. Parts but the model may be
// null.
struct Pipeline {
  std::unique_ptr<Vocabulary> vocabulary;
  ModelPtr model;
  AddedTokens added;
  NormalizerPtr normalizer;
  PreTokenizerPtr pre_tokenizer;
  DecoderPtr decoder;
};
std::unique_ptr<const Engine> make_pipeline_engine(Pipeline pipeline);

}  // namespace tessera::text
