#include "text/decoder.h"

#include <algorithm>

#include "text/model.h"
#include "text/normalizer.h"

namespace tessera::text {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty() || text.find(from) == std::string::npos) return;
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done);
    out += to;
    done = at + from.size();
  }
  text = out.append(text, done);
}

// A decoder that looks at each token and its place: `rule(token, index, count)`.
template <class Rule>
class PerToken : public Decoder {
 public:
  explicit PerToken(Rule rule) : rule_(std::move(rule)) {}
  void apply(std::vector<DecodedToken>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) rule_(tokens[i], i, tokens.size());
  }

 private:
  Rule rule_;
};

template <class Rule>
DecoderPtr per_token(Rule rule) {
  return std::make_unique<PerToken<Rule>>(std::move(rule));
}

class CtcDecoder : public Decoder {
 public:
  CtcDecoder(std::string pad, std::string delimiter, bool clean_up)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), clean_up_(clean_up) {}
  void apply(std::vector<DecodedToken>& tokens) const override {
    const auto same = [](const DecodedToken& a, const DecodedToken& b) { return a.text == b.text; };
    tokens.erase(std::unique(tokens.begin(), tokens.end(), same), tokens.end());
    for (DecodedToken& token : tokens) {
      replace_all(token.text, pad_, "");
      if (!clean_up_) continue;
      token.text = clean_up_spaces(token.text);
      replace_all(token.text, delimiter_, " ");
    }
  }

 private:
  std::string pad_;
  std::string delimiter_;
  bool clean_up_;
};

class FuseDecoder : public Decoder {
 public:
  void apply(std::vector<DecodedToken>& tokens) const override {
    DecodedToken joined;
    for (const DecodedToken& token : tokens) joined.text += token.text;
    tokens.clear();
    tokens.push_back(std::move(joined));
  }
};

class SequenceDecoder : public Decoder {
 public:
  explicit SequenceDecoder(std::vector<DecoderPtr> parts) : parts_(std::move(parts)) {}
  void apply(std::vector<DecodedToken>& tokens) const override {
    for (const DecoderPtr& part : parts_) part->apply(tokens);
  }

 private:
  std::vector<DecoderPtr> parts_;
};

}  // namespace

DecoderPtr make_byte_level_decoder() {
  return per_token([](DecodedToken& token, size_t, size_t) {
    std::string bytes;
    if (!token.added && is_valid_utf8(token.text) && letters_to_bytes(token.text, bytes)) token.text = std::move(bytes);
  });
}

DecoderPtr make_word_piece_decoder(std::string prefix, bool clean_up) {
  return per_token([prefix = std::move(prefix), clean_up](DecodedToken& token, size_t i, size_t) {
    if (i != 0) {
      const bool continues = !prefix.empty() && token.text.starts_with(prefix);
      continues ? token.text.erase(0, prefix.size()) : token.text.insert(0, " ");
    }
    if (clean_up) token.text = clean_up_spaces(token.text);
  });
}

DecoderPtr make_metaspace_decoder(std::string replacement, bool strip_first) {
  return per_token([replacement = std::move(replacement), strip_first](DecodedToken& token, size_t i, size_t) {
    replace_all(token.text, replacement, " ");
    if (i == 0 && strip_first && token.text.starts_with(' ')) token.text.erase(0, 1);
  });
}

DecoderPtr make_bpe_decoder(std::string suffix) {
  return per_token([suffix = std::move(suffix)](DecodedToken& token, size_t i, size_t count) {
    replace_all(token.text, suffix, i + 1 == count ? "" : " ");
  });
}

DecoderPtr make_byte_fallback_decoder() {
  return per_token([](DecodedToken& token, size_t, size_t) {
    if (const int byte = parse_byte_token(token.text); byte >= 0) token.text.assign(1, static_cast<char>(byte));
  });
}

DecoderPtr make_strip_decoder(std::string content, size_t left, size_t right) {
  return per_token([content = std::move(content), left, right](DecodedToken& token, size_t, size_t) {
    if (content.empty()) return;
    std::string_view rest = token.text;
    for (size_t n = 0; n < left && rest.starts_with(content); ++n) rest.remove_prefix(content.size());
    for (size_t n = 0; n < right && rest.ends_with(content); ++n) rest.remove_suffix(content.size());
    if (rest.size() != token.text.size()) token.text = std::string(rest);
  });
}

DecoderPtr make_replace_decoder(Pattern pattern, std::string content) {
  return per_token([pattern = std::move(pattern), content = std::move(content)](DecodedToken& token, size_t, size_t) {
    const std::string text = pattern.is_literal() || is_valid_utf8(token.text) ? token.text : repair_utf8(token.text);
    Matcher matcher(pattern, text);
    std::string out;
    Span match;
    size_t done = 0;
    // An expression that gives up leaves the rest of the token as it is.
    for (Result<bool> found = matcher.next(match); found && *found; found = matcher.next(match)) {
      out.append(text, done, match.begin - done);
      out += content;
      done = match.end;
    }
    if (done > 0 || !out.empty()) token.text = out.append(text, done);
  });
}

DecoderPtr make_ctc_decoder(std::string pad, std::string word_delimiter, bool clean_up) {
  return std::make_unique<CtcDecoder>(std::move(pad), std::move(word_delimiter), clean_up);
}
DecoderPtr make_fuse_decoder() { return std::make_unique<FuseDecoder>(); }
DecoderPtr make_decoder_sequence(std::vector<DecoderPtr> parts) {
  return std::make_unique<SequenceDecoder>(std::move(parts));
}
DecoderPtr make_spaced_decoder() {
  return per_token([](DecodedToken& token, size_t i, size_t) {
    if (i != 0) token.text.insert(0, " ");
  });
}

std::string clean_up_spaces(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> rules[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  std::string out(text);
  for (const auto& [from, to] : rules) replace_all(out, from, to);
  return out;
}

}  // namespace tessera::text
