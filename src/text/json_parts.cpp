#include "text/json_parts.h"

#include <algorithm>

#include "text/base64.h"

namespace tessera::text {
namespace {

constexpr int kMaxSequenceDepth = 32;  // of sequences in sequences

Result<std::string_view> type_of(const JsonValue& json, std::string_view what, int depth) {
  if (depth > kMaxSequenceDepth)
    return fail(Code::file_malformed, "the {} nests deeper than {}", what, kMaxSequenceDepth);
  const auto type = field(json, "type");
  if (!type) return fail(Code::file_malformed, "a {} has no 'type'", what);
  return as<std::string_view>(*type, "type", "a string");
}

tl::unexpected<Error> unknown_type(std::string_view what, std::string_view type) {
  return fail(Code::unsupported_feature, "the tokenizer's {} has the type '{}', which is not known", what, type);
}

// The parts of a Sequence, which stand under `key`. `last` tells the reader that no other follows.
template <class Part, class Read>
Result<std::vector<Part>> read_sequence(const JsonValue& json, std::string_view key, Read read) {
  TESSERA_ASSIGN(const auto list, array_field(json, key, "a Sequence"));
  std::vector<Part> parts;
  size_t left = list.size();
  for (const JsonValue item : list) {
    TESSERA_ASSIGN(Part part, read(item, --left == 0));
    parts.push_back(std::move(part));
  }
  return parts;
}

// {"String": text} or {"Regex": expression}.
Result<Pattern> read_pattern(const JsonValue& json, std::string_view where) {
  const auto pattern = field(json, "pattern");
  if (!pattern) return fail(Code::file_malformed, "{} has no 'pattern'", where);
  if (pattern->is_string()) {
    TESSERA_ASSIGN(const std::string_view text, as<std::string_view>(*pattern, "pattern", "a string"));
    return Pattern::literal(std::string(text));
  }
  if (const auto text = field(*pattern, "String")) {
    TESSERA_ASSIGN(const std::string_view literal, as<std::string_view>(*text, "String", "a string"));
    return Pattern::literal(std::string(literal));
  }
  if (const auto expression = field(*pattern, "Regex")) {
    TESSERA_ASSIGN(const std::string_view regex, as<std::string_view>(*expression, "Regex", "a string"));
    return Pattern::regex(regex);
  }
  return fail(Code::file_malformed, "the pattern of {} is neither a String nor a Regex", where);
}

Result<SplitBehavior> read_behavior(const JsonValue& json, std::string_view otherwise) {
  TESSERA_ASSIGN(const std::string_view name, string_field(json, "behavior", otherwise));
  constexpr std::pair<std::string_view, SplitBehavior> names[] = {
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  for (const auto& [text, behavior] : names)
    if (text == name) return behavior;
  return fail(Code::unsupported_feature, "a split's behavior is '{}', which is not known", name);
}

struct MetaspaceFields {
  std::string replacement;
  PrependScheme scheme = PrependScheme::always;
};

// The fields of Metaspace: prepend_scheme, or add_prefix_space of older files.
Result<MetaspaceFields> read_metaspace(const JsonValue& json) {
  MetaspaceFields fields;
  TESSERA_ASSIGN(const std::string_view replacement, string_field(json, "replacement", "▁"));
  TESSERA_ASSIGN(const std::string_view spelled, string_field(json, "str_rep", replacement));
  if (spelled.empty()) return fail(Code::file_malformed, "Metaspace's replacement is empty");
  fields.replacement = spelled;
  TESSERA_ASSIGN(const bool add_prefix_space, bool_field(json, "add_prefix_space", true));
  TESSERA_ASSIGN(const std::string_view scheme,
                 string_field(json, "prepend_scheme", add_prefix_space ? "always" : "never"));
  if (scheme == "always") {
    fields.scheme = PrependScheme::always;
  } else if (scheme == "first") {
    fields.scheme = PrependScheme::first;
  } else if (scheme == "never") {
    fields.scheme = PrependScheme::never;
  } else {
    return fail(Code::unsupported_feature, "Metaspace's prepend_scheme is '{}', which is not known", scheme);
  }
  return fields;
}

Result<NormalizerPtr> read_normalizer_at(const JsonValue& json, int depth);

Result<NormalizerPtr> read_bert_normalizer(const JsonValue& json) {
  BertRules rules;
  TESSERA_ASSIGN(rules.clean_text, bool_field(json, "clean_text", true));
  TESSERA_ASSIGN(rules.handle_chinese_chars, bool_field(json, "handle_chinese_chars", true));
  TESSERA_ASSIGN(rules.lowercase, bool_field(json, "lowercase", true));
  TESSERA_ASSIGN(rules.strip_accents, bool_field(json, "strip_accents", rules.lowercase));
  return make_bert(rules);
}

Result<NormalizerPtr> read_normalizer_at(const JsonValue& json, int depth) {
  TESSERA_ASSIGN(const std::string_view type, type_of(json, "normalizer", depth));
  if (type == "Sequence") {
    TESSERA_ASSIGN(auto parts, read_sequence<NormalizerPtr>(json, "normalizers", [&](const JsonValue& item, bool) {
                     return read_normalizer_at(item, depth + 1);
                   }));
    return make_sequence(std::move(parts));
  }
  if (type == "NFC") return make_normal_form(NormalForm::nfc);
  if (type == "NFD") return make_normal_form(NormalForm::nfd);
  if (type == "NFKC") return make_normal_form(NormalForm::nfkc);
  if (type == "NFKD") return make_normal_form(NormalForm::nfkd);
  if (type == "Lowercase") return make_lowercase();
  if (type == "StripAccents") return make_strip_accents();
  if (type == "Nmt") return make_nmt();
  if (type == "ByteLevel") return make_byte_level();
  if (type == "BertNormalizer") return read_bert_normalizer(json);
  if (type == "Strip") {
    TESSERA_ASSIGN(const bool left, bool_field(json, "strip_left", true));
    TESSERA_ASSIGN(const bool right, bool_field(json, "strip_right", true));
    return make_strip(left, right);
  }
  if (type == "Prepend") {
    TESSERA_ASSIGN(const std::string_view text, string_field(json, "prepend", ""));
    return make_prepend(std::string(text));
  }
  if (type == "Append") {
    TESSERA_ASSIGN(const std::string_view text, string_field(json, "append", ""));
    return make_append(std::string(text));
  }
  if (type == "Replace") {
    TESSERA_ASSIGN(Pattern pattern, read_pattern(json, "Replace"));
    TESSERA_ASSIGN(const std::string_view content, string_field(json, "content", ""));
    return make_replace(std::move(pattern), std::string(content));
  }
  if (type == "Precompiled") {
    TESSERA_ASSIGN(const std::string_view text, string_field(json, "precompiled_charsmap", ""));
    TESSERA_ASSIGN(const std::string blob, decode_base64(text));
    TESSERA_ASSIGN(Charsmap map, Charsmap::parse(blob));
    return make_precompiled(std::move(map));
  }
  return unknown_type("normalizer", type);
}

Result<ReadPreTokenizer> read_pre_tokenizer_at(const JsonValue& json, bool bytes_last, int depth) {
  TESSERA_ASSIGN(const std::string_view type, type_of(json, "pre_tokenizer", depth));
  ReadPreTokenizer out;
  if (type == "Sequence") {
    const auto read = [&](const JsonValue& item, bool last) -> Result<PreTokenizerPtr> {
      TESSERA_ASSIGN(ReadPreTokenizer part, read_pre_tokenizer_at(item, bytes_last && last, depth + 1));
      out.takes_bytes = part.takes_bytes;
      return std::move(part.part);
    };
    TESSERA_ASSIGN(auto parts, read_sequence<PreTokenizerPtr>(json, "pretokenizers", read));
    out.part = make_pre_tokenizer_sequence(std::move(parts));
  } else if (type == "ByteLevel") {
    ByteLevelRules rules;
    TESSERA_ASSIGN(rules.add_prefix_space, bool_field(json, "add_prefix_space", true));
    TESSERA_ASSIGN(rules.use_regex, bool_field(json, "use_regex", true));
    rules.to_letters = !bytes_last;
    out = {make_byte_level_pre_tokenizer(rules), bytes_last};
  } else if (type == "Split") {
    TESSERA_ASSIGN(Pattern pattern, read_pattern(json, "Split"));
    TESSERA_ASSIGN(const SplitBehavior behavior, read_behavior(json, "Removed"));
    TESSERA_ASSIGN(const bool invert, bool_field(json, "invert", false));
    out.part = make_split(std::move(pattern), behavior, invert);
  } else if (type == "Metaspace") {
    TESSERA_ASSIGN(MetaspaceFields fields, read_metaspace(json));
    TESSERA_ASSIGN(const bool split, bool_field(json, "split", true));
    out.part = make_metaspace(std::move(fields.replacement), fields.scheme, split);
  } else if (type == "Punctuation") {
    TESSERA_ASSIGN(const SplitBehavior behavior, read_behavior(json, "Isolated"));
    out.part = make_class_split(is_punctuation, behavior);
  } else if (type == "Digits") {
    TESSERA_ASSIGN(const bool individual, bool_field(json, "individual_digits", false));
    out.part = make_digits(individual);
  } else if (type == "CharDelimiterSplit") {
    TESSERA_ASSIGN(const std::string_view delimiter, string_field(json, "delimiter", ""));
    out.part = make_split(Pattern::literal(std::string(delimiter)), SplitBehavior::removed, false);
  } else if (type == "FixedLength") {
    TESSERA_ASSIGN(const uint32_t length, uint_field(json, "length", 5));
    if (length == 0) return fail(Code::file_malformed, "FixedLength's length is 0");
    out.part = make_fixed_length(length);
  } else if (type == "UnicodeScripts") {
    TESSERA_ASSIGN(out.part, make_unicode_scripts());
  } else if (type == "BertPreTokenizer") {
    out.part = make_bert_pre_tokenizer();
  } else if (type == "Whitespace") {
    out.part = make_whitespace();
  } else if (type == "WhitespaceSplit") {
    out.part = make_class_split(is_space, SplitBehavior::removed);
  } else {
    return unknown_type("pre_tokenizer", type);
  }
  return out;
}

Result<DecoderPtr> read_decoder_at(const JsonValue& json, int depth) {
  TESSERA_ASSIGN(const std::string_view type, type_of(json, "decoder", depth));
  if (type == "Sequence") {
    TESSERA_ASSIGN(auto parts, read_sequence<DecoderPtr>(json, "decoders", [&](const JsonValue& item, bool) {
                     return read_decoder_at(item, depth + 1);
                   }));
    return make_decoder_sequence(std::move(parts));
  }
  if (type == "ByteLevel") return make_byte_level_decoder();
  if (type == "ByteFallback") return make_byte_fallback_decoder();
  if (type == "Fuse") return make_fuse_decoder();
  if (type == "Metaspace") {
    TESSERA_ASSIGN(MetaspaceFields fields, read_metaspace(json));
    return make_metaspace_decoder(std::move(fields.replacement), fields.scheme != PrependScheme::never);
  }
  if (type == "WordPiece") {
    TESSERA_ASSIGN(const std::string_view prefix, string_field(json, "prefix", "##"));
    TESSERA_ASSIGN(const bool clean_up, bool_field(json, "cleanup", true));
    return make_word_piece_decoder(std::string(prefix), clean_up);
  }
  if (type == "BPEDecoder") {
    TESSERA_ASSIGN(const std::string_view suffix, string_field(json, "suffix", "</w>"));
    return make_bpe_decoder(std::string(suffix));
  }
  if (type == "CTC") {
    TESSERA_ASSIGN(const std::string_view pad, string_field(json, "pad_token", "<pad>"));
    TESSERA_ASSIGN(const std::string_view delimiter, string_field(json, "word_delimiter_token", "|"));
    TESSERA_ASSIGN(const bool clean_up, bool_field(json, "cleanup", true));
    return make_ctc_decoder(std::string(pad), std::string(delimiter), clean_up);
  }
  if (type == "Strip") {
    TESSERA_ASSIGN(const std::string_view content, string_field(json, "content", " "));
    TESSERA_ASSIGN(const uint32_t left, uint_field(json, "start", 0));
    TESSERA_ASSIGN(const uint32_t right, uint_field(json, "stop", 0));
    return make_strip_decoder(std::string(content), left, right);
  }
  if (type == "Replace") {
    TESSERA_ASSIGN(Pattern pattern, read_pattern(json, "Replace"));
    TESSERA_ASSIGN(const std::string_view content, string_field(json, "content", ""));
    return make_replace_decoder(std::move(pattern), std::string(content));
  }
  return unknown_type("decoder", type);
}

}  // namespace

Result<NormalizerPtr> read_normalizer(const JsonValue& json) { return read_normalizer_at(json, 0); }
Result<ReadPreTokenizer> read_pre_tokenizer(const JsonValue& json, bool bytes_last) {
  return read_pre_tokenizer_at(json, bytes_last, 0);
}
Result<DecoderPtr> read_decoder(const JsonValue& json) { return read_decoder_at(json, 0); }

}  // namespace tessera::text
