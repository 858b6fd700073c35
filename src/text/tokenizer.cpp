#include "text/tokenizer.h"

#include <algorithm>

#include "base/result.h"
#include "text/tokenizer_state.h"

namespace tessera::text {
namespace {

constexpr size_t kMaxText = size_t{1} << 30;  // bytes; spans are 32 bits wide and normalisation lengthens text

// Where each byte of a repaired text came from.
struct Repair {
  std::string text;
  std::vector<uint32_t> origin;  // [bytes + 1] empty when nothing was repaired
};

Repair repair(std::string_view text) {
  Repair out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    const uint32_t length = step.valid != 0 ? step.valid : step.bad;
    const std::string_view put = step.valid != 0 ? text.substr(at, step.valid) : std::string_view("\xEF\xBF\xBD");
    // All bytes of a character begin where it does: spans are on its boundaries.
    out.origin.insert(out.origin.end(), put.size(), static_cast<uint32_t>(at));
    out.text += put;
    at += length;
  }
  out.origin.push_back(static_cast<uint32_t>(text.size()));
  return out;
}

// The engine's tokens of any text.
Status encode_text(const Engine& engine, std::string_view text, const EncodeOptions& options,
                   std::vector<ModelToken>& out) {
  if (text.size() > kMaxText)
    return fail(Code::value_invalid, "the text has {} bytes, more than {}", text.size(), kMaxText);
  Repair repaired;
  const bool valid = is_valid_utf8(text);
  if (!valid) repaired = repair(text);
  TESSERA_TRY(engine.encode({valid ? text : repaired.text, options.parse_special, options.offsets}, out));
  if (!valid && options.offsets)
    for (ModelToken& token : out) token.span = {repaired.origin[token.span.begin], repaired.origin[token.span.end]};
  return {};
}

// Cuts tokens so that, with those that the frame adds, no more than the limit remain. Whether any were.
bool truncate(const Truncation& rule, size_t frame_tokens, std::vector<ModelToken>& first,
              std::vector<ModelToken>* second) {
  const size_t limit = rule.max_length > frame_tokens ? rule.max_length - frame_tokens : 0;
  size_t a = first.size(), b = second != nullptr ? second->size() : 0;
  if (a + b <= limit) return false;
  using Strategy = Truncation::Strategy;
  if (second == nullptr || rule.strategy == Strategy::only_first) {
    a = limit > b ? limit - b : 0;
  } else if (rule.strategy == Strategy::only_second) {
    b = limit > a ? limit - a : 0;
  } else {
    // The longer gives way until both are equal; an odd token goes to the second.
    const size_t shorter = std::min({a, b, limit / 2});
    const bool first_is_shorter = a <= b;
    const size_t other = limit - shorter;
    a = first_is_shorter ? std::min(a, shorter) : std::min(a, other);
    b = limit - a;
  }
  const auto cut = [&](std::vector<ModelToken>& tokens, size_t size) {
    if (tokens.size() <= size) return;
    const auto extra = static_cast<ptrdiff_t>(tokens.size() - size);
    rule.left ? tokens.erase(tokens.begin(), tokens.begin() + extra) : tokens.erase(tokens.end() - extra, tokens.end());
  };
  cut(first, a);
  if (second != nullptr) cut(*second, b);
  return true;
}

void pad(const Padding& rule, bool offsets, Encoding& out) {
  size_t length = std::max<size_t>(out.ids.size(), rule.length);
  if (rule.multiple_of > 1) length = (length + rule.multiple_of - 1) / rule.multiple_of * rule.multiple_of;
  const auto count = static_cast<size_t>(length - out.ids.size());
  const auto fill = [&](auto& values, auto value) {
    values.insert(rule.left ? values.begin() : values.end(), count, value);
  };
  fill(out.ids, static_cast<TokenId>(rule.id));
  fill(out.type_ids, rule.type_id);
  fill(out.inserted, uint8_t{1});
  if (offsets) fill(out.offsets, Span{});
}

// Spaces at the ends of a byte-level token: how many at the front, and at the back.
std::pair<uint32_t, uint32_t> outer_spaces(std::string_view token) {
  constexpr std::string_view space = "\xC4\xA0";  // the letter of byte 0x20
  uint32_t front = 0, back = 0;
  for (; token.starts_with(space); ++front) token.remove_prefix(space.size());
  if (token.empty()) return {front, front};
  for (; token.ends_with(space); ++back) token.remove_suffix(space.size());
  return {front, back};
}

void trim_offsets(const Engine& engine, bool added_prefix_space, std::vector<ModelToken>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    Span& span = tokens[i].span;
    auto [front, back] = outer_spaces(engine.token(tokens[i].id));
    // The space that was put before the text has no place in it.
    if (front > 0 && added_prefix_space && (i == 0 || span.begin == 0)) --front;
    span.begin = std::min(span.begin + front, span.end);
    if (back <= span.end) span.end = std::max(span.end - back, span.begin);
  }
}

void append(const std::vector<ModelToken>& tokens, int32_t type_id, bool offsets, Encoding& out) {
  for (const ModelToken& token : tokens) {
    out.ids.push_back(static_cast<TokenId>(token.id));
    if (offsets) out.offsets.push_back(token.span);
  }
  out.type_ids.resize(out.ids.size(), type_id);
  out.inserted.resize(out.ids.size(), 0);
}

}  // namespace

Tokenizer::Tokenizer(TokenizerState state) : state_(std::make_shared<const TokenizerState>(std::move(state))) {}

Result<Encoding> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return encode_texts(text, nullptr, options);
}

Result<Encoding> Tokenizer::encode_pair(std::string_view first, std::string_view second,
                                        const EncodeOptions& options) const {
  return encode_texts(first, &second, options);
}

Result<Encoding> Tokenizer::encode_texts(std::string_view first, const std::string_view* second,
                                         const EncodeOptions& options) const {
  std::vector<ModelToken> tokens[2];
  TESSERA_TRY(encode_text(*state_->engine, first, options, tokens[0]));
  if (second != nullptr) TESSERA_TRY(encode_text(*state_->engine, *second, options, tokens[1]));

  const Frame& frame = state_->frame;
  const std::vector<FramePart>& parts = second != nullptr ? frame.pair : frame.single;
  Encoding out;
  size_t added = 0;
  for (const FramePart& part : parts) added += options.frame ? part.ids.size() : 0;
  const auto limit = [&](const Truncation& rule) {
    if (truncate(rule, added, tokens[0], second != nullptr ? &tokens[1] : nullptr)) out.cut = true;
  };
  if (options.file_limits && state_->truncation) limit(*state_->truncation);
  if (options.max_tokens > 0)
    limit({static_cast<uint32_t>(std::min<size_t>(options.max_tokens, UINT32_MAX)), Truncation::Strategy::longest_first,
           false});
  if (options.offsets && frame.trim_offsets)
    for (auto& list : tokens) trim_offsets(*state_->engine, frame.added_prefix_space, list);

  out.ids.reserve(tokens[0].size() + tokens[1].size() + 4);
  for (const FramePart& part : parts) {
    if (part.kind != FramePart::Kind::inserted) {
      append(tokens[part.kind == FramePart::Kind::second], part.type_id, options.offsets, out);
    } else if (options.frame) {
      for (uint32_t id : part.ids) out.ids.push_back(static_cast<TokenId>(id));
      out.type_ids.resize(out.ids.size(), part.type_id);
      out.inserted.resize(out.ids.size(), 1);
      if (options.offsets) out.offsets.resize(out.ids.size());
    }
  }
  if (options.file_limits && state_->padding) pad(*state_->padding, options.offsets, out);
  return out;
}

Result<std::vector<TokenId>> Tokenizer::encode_ids(std::string_view text) const {
  TESSERA_ASSIGN(Encoding encoding, encode(text, {.frame = false}));
  return std::move(encoding.ids);
}

void Tokenizer::decode_bytes(std::span<const TokenId> ids, const DecodeOptions& options, std::string& out) const {
  std::vector<uint32_t> kept;
  kept.reserve(ids.size());
  for (TokenId id : ids)
    if (id >= 0 && !(options.skip_special && is_special(id))) kept.push_back(static_cast<uint32_t>(id));
  out = state_->engine->decode(kept);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  std::string bytes;
  decode_bytes(ids, options, bytes);
  std::string text = repair_utf8(bytes);
  return options.clean_up_spaces ? clean_up_spaces(text) : text;
}

size_t Tokenizer::size() const { return state_->engine->size(); }

std::string_view Tokenizer::token(TokenId id) const {
  return id < 0 ? std::string_view() : state_->engine->token(static_cast<uint64_t>(id));
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  const uint32_t id = state_->engine->find(token);
  return id == Vocabulary::kNone ? std::nullopt : std::optional(static_cast<TokenId>(id));
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && state_->engine->is_special(static_cast<uint64_t>(id));
}

const SpecialTokens& Tokenizer::special() const { return state_->special; }
const std::vector<NamedTemplate>& Tokenizer::chat_templates() const { return state_->chat_templates; }

std::string Tokenizer::description() const { return fmt::format("{}, {} tokens", state_->engine->kind(), size()); }

}  // namespace tessera::text
