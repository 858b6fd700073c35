// The post-processor, truncation and padding of a tokenizer.json.
#include <algorithm>

#include "text/json_parts.h"

namespace tessera::text {
namespace {

constexpr int kMaxProcessorDepth = 32;
constexpr size_t kMaxParts = 1024;  // of a frame: hostile sequences double it

FramePart inserted(uint32_t id, int32_t type_id) { return {FramePart::Kind::inserted, type_id, {id}}; }

// ["[SEP]", 102]
Result<uint32_t> read_named_id(const JsonValue& json, std::string_view key) {
  TESSERA_ASSIGN(const auto pair, array_field(json, key, "the post_processor"));
  JsonValue id;
  uint64_t number = 0;
  if (pair.at(1).get(id) != simdjson::SUCCESS || id.get(number) != simdjson::SUCCESS || number > INT32_MAX)
    return fail(Code::file_malformed, "the post_processor's '{}' is no pair of a token and its id", key);
  return static_cast<uint32_t>(number);
}

// BertProcessing and RobertaProcessing: they differ in what stands between two texts, and in its type.
Result<Frame> read_bert_frame(const JsonValue& json, bool roberta) {
  TESSERA_ASSIGN(const uint32_t sep, read_named_id(json, "sep"));
  TESSERA_ASSIGN(const uint32_t cls, read_named_id(json, "cls"));
  using Kind = FramePart::Kind;
  const int32_t second = roberta ? 0 : 1;
  Frame frame;
  frame.single = {inserted(cls, 0), {Kind::first, 0}, inserted(sep, 0)};
  frame.pair = frame.single;
  if (roberta) frame.pair.push_back(inserted(sep, 0));
  frame.pair.push_back({Kind::second, second});
  frame.pair.push_back(inserted(sep, second));
  if (roberta) {
    TESSERA_ASSIGN(frame.trim_offsets, bool_field(json, "trim_offsets", true));
    TESSERA_ASSIGN(frame.added_prefix_space, bool_field(json, "add_prefix_space", true));
  }
  return frame;
}

// The ids that a template's special token stands for.
Result<std::vector<uint32_t>> read_special(const JsonValue& json, std::string_view name) {
  const auto all = field(json, "special_tokens");
  const auto token = all ? field(*all, name) : std::nullopt;
  if (!token)
    return fail(Code::tokenizer_invalid, "the template uses the special token '{}', which it does not define", name);
  TESSERA_ASSIGN(const auto list, array_field(*token, "ids", "a special token"));
  std::vector<uint32_t> ids;
  for (const JsonValue item : list) {
    TESSERA_ASSIGN(const uint64_t id, as<uint64_t>(item, "ids", "a number from 0"));
    if (id > INT32_MAX || ids.size() >= kMaxParts)
      return fail(Code::file_malformed, "the special token '{}' has impossible ids", name);
    ids.push_back(static_cast<uint32_t>(id));
  }
  return ids;
}

Result<std::vector<FramePart>> read_template(const JsonValue& json, std::string_view key) {
  TESSERA_ASSIGN(const auto list, array_field(json, key, "TemplateProcessing"));
  std::vector<FramePart> parts;
  for (const JsonValue item : list) {
    const auto special = field(item, "SpecialToken");
    const auto sequence = special ? special : field(item, "Sequence");
    if (!sequence) return fail(Code::file_malformed, "a part of the template is neither SpecialToken nor Sequence");
    TESSERA_ASSIGN(const std::string_view id, string_field(*sequence, "id", ""));
    TESSERA_ASSIGN(const uint32_t type_id, uint_field(*sequence, "type_id", 0));
    FramePart part;
    part.type_id = static_cast<int32_t>(type_id);
    if (special) {
      part.kind = FramePart::Kind::inserted;
      TESSERA_ASSIGN(part.ids, read_special(json, id));
    } else if (id == "A" || id == "B") {
      part.kind = id == "A" ? FramePart::Kind::first : FramePart::Kind::second;
    } else {
      return fail(Code::file_malformed, "a template's sequence is '{}', neither A nor B", id);
    }
    parts.push_back(std::move(part));
    if (parts.size() > kMaxParts) return fail(Code::file_malformed, "the template has more than {} parts", kMaxParts);
  }
  return parts;
}

// What `outer` puts around what `inner` makes.
Status wrap(std::vector<FramePart>& inner, const std::vector<FramePart>& outer) {
  std::vector<FramePart> out;
  for (const FramePart& part : outer) {
    if (part.kind == FramePart::Kind::inserted) {
      out.push_back(part);
    } else if (part.kind == FramePart::Kind::first) {
      out.insert(out.end(), inner.begin(), inner.end());
    }
    if (out.size() > kMaxParts) return fail(Code::file_malformed, "the template has more than {} parts", kMaxParts);
  }
  inner = std::move(out);
  return {};
}

Result<Frame> read_frame_at(const JsonValue& json, int depth) {
  if (depth > kMaxProcessorDepth)
    return fail(Code::file_malformed, "the post_processor nests deeper than {}", kMaxProcessorDepth);
  TESSERA_ASSIGN(const std::string_view type, string_field(json, "type", ""));
  Frame frame;
  if (type == "TemplateProcessing") {
    TESSERA_ASSIGN(frame.single, read_template(json, "single"));
    TESSERA_ASSIGN(frame.pair, read_template(json, "pair"));
  } else if (type == "ByteLevel") {
    TESSERA_ASSIGN(frame.trim_offsets, bool_field(json, "trim_offsets", true));
    TESSERA_ASSIGN(frame.added_prefix_space, bool_field(json, "add_prefix_space", true));
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    return read_bert_frame(json, type == "RobertaProcessing");
  } else if (type == "Sequence") {
    TESSERA_ASSIGN(const auto list, array_field(json, "processors", "a Sequence"));
    bool framed = false;
    for (const JsonValue item : list) {
      TESSERA_ASSIGN(Frame next, read_frame_at(item, depth + 1));
      frame.trim_offsets = frame.trim_offsets || next.trim_offsets;
      frame.added_prefix_space = frame.added_prefix_space || (next.trim_offsets && next.added_prefix_space);
      const bool frames = next.single.size() > 1;
      if (frames && !framed) {
        frame.single = std::move(next.single);
        frame.pair = std::move(next.pair);
      } else if (frames) {
        TESSERA_TRY(wrap(frame.single, next.single));
        TESSERA_TRY(wrap(frame.pair, next.single));
      }
      framed = framed || frames;
    }
  } else {
    return fail(Code::unsupported_feature, "the tokenizer's post_processor has the type '{}', which is not known",
                type);
  }
  return frame;
}

}  // namespace

Result<Frame> read_frame(const JsonValue& json) { return read_frame_at(json, 0); }

Result<Truncation> read_truncation(const JsonValue& json) {
  Truncation rule;
  TESSERA_ASSIGN(rule.max_length, uint_field(json, "max_length", 512));
  TESSERA_ASSIGN(const std::string_view direction, string_field(json, "direction", "Right"));
  rule.left = direction == "Left";
  TESSERA_ASSIGN(const std::string_view strategy, string_field(json, "strategy", "LongestFirst"));
  if (strategy == "OnlyFirst") {
    rule.strategy = Truncation::Strategy::only_first;
  } else if (strategy == "OnlySecond") {
    rule.strategy = Truncation::Strategy::only_second;
  } else if (strategy != "LongestFirst") {
    return fail(Code::unsupported_feature, "the truncation's strategy is '{}', which is not known", strategy);
  }
  return rule;
}

Result<Padding> read_padding(const JsonValue& json) {
  constexpr uint32_t longest = 1u << 20;  // tokens: no model takes more, and a file may not ask for all memory
  Padding rule;
  if (const auto strategy = field(json, "strategy"); strategy && strategy->is_object()) {
    TESSERA_ASSIGN(rule.length, uint_field(*strategy, "Fixed", 0));
  }
  TESSERA_ASSIGN(rule.multiple_of, uint_field(json, "pad_to_multiple_of", 0));
  if (rule.length > longest || rule.multiple_of > longest)
    return fail(Code::file_malformed, "the padding goes to {} tokens", std::max(rule.length, rule.multiple_of));
  TESSERA_ASSIGN(const std::string_view direction, string_field(json, "direction", "Right"));
  rule.left = direction == "Left";
  TESSERA_ASSIGN(rule.id, uint_field(json, "pad_id", 0));
  TESSERA_ASSIGN(const uint32_t type_id, uint_field(json, "pad_type_id", 0));
  rule.type_id = static_cast<int32_t>(type_id);
  return rule;
}

}  // namespace tessera::text
