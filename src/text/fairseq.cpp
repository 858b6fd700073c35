#include "text/fairseq.h"

#include <algorithm>
#include <span>

#include "base/result.h"

namespace tessera::text {

// Tokens of its own first, then the pieces from `kept` on, then codes of languages, then <mask>.
struct FairseqKind {
  std::string_view begins;  // the tokenizer's class
  std::span<const std::string_view> first;
  size_t kept;
  std::span<const std::string_view> languages;
  std::string_view usual_language;
  bool language_first;  // else behind the text
};

namespace {

constexpr std::string_view kPlain[] = {"<s>", "<pad>", "</s>", "<unk>"};
// Camembert keeps the beginning and end of the model itself: those of fairseq are there and unused.
constexpr std::string_view kUnused[] = {"<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"};

// The codes of mBART's languages in the order of its training: 25 of the first model, and those that came later.
constexpr std::string_view kLanguages[] = {
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT",
    "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK",
    "tr_TR", "vi_VN", "zh_CN", "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE",
    "km_KH", "mk_MK", "ml_IN", "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN",
    "te_IN", "th_TH", "tl_XX", "uk_UA", "ur_PK", "xh_ZA", "gl_ES", "sl_SI"};
constexpr std::span<const std::string_view> kFirstLanguages(kLanguages, 25);

constexpr FairseqKind kKinds[] = {
    {"XLMRoberta", kPlain, 3, {}, "", false},
    {"Camembert", kUnused, 1, {}, "", false},
    {"MBart50", kPlain, 3, kLanguages, "en_XX", true},
    {"MBart", kPlain, 3, kFirstLanguages, "en_XX", false},
};

// Puts `ids` in front of a text, or behind it.
void put(std::vector<FramePart>& parts, bool in_front, std::initializer_list<TokenId> ids) {
  FramePart part{FramePart::Kind::inserted, 0, {}};
  for (TokenId id : ids) part.ids.push_back(static_cast<uint32_t>(id));
  parts.insert(in_front ? parts.begin() : parts.end(), std::move(part));
}

void frame_languages(const FairseqKind& kind, TokenId language, TokenId eos, Frame& frame) {
  frame.single = {{FramePart::Kind::first}};
  frame.pair = {{FramePart::Kind::first}, {FramePart::Kind::second, 0}};
  for (std::vector<FramePart>* parts : {&frame.single, &frame.pair}) {
    if (kind.language_first) put(*parts, true, {language});
    kind.language_first ? put(*parts, false, {eos}) : put(*parts, false, {eos, language});
  }
}

}  // namespace

const FairseqKind* find_fairseq(std::string_view tokenizer_class) {
  for (const FairseqKind& kind : kKinds)
    if (tokenizer_class.starts_with(kind.begins)) return &kind;
  return nullptr;
}

Status to_fairseq(const FairseqKind& kind, std::string_view language, SentencePieceModel& model,
                  TokenizerState& state) {
  constexpr std::string_view own[] = {"<unk>", "<s>", "</s>"};
  for (size_t i = 0; i < std::size(own); ++i)
    if (i >= model.pieces.size() || model.pieces[i] != own[i])
      return fail(Code::tokenizer_invalid, "piece {} is '{}', where {} has '{}'", i,
                  i < model.pieces.size() ? model.pieces[i] : "", kind.begins, own[i]);
  SentencePieceModel moved = model;
  moved.pieces.clear();
  moved.scores.clear();
  moved.types.clear();
  const auto add = [&](std::string_view piece, PieceType type) {
    AddedToken token;
    token.content = piece;
    token.id = static_cast<uint32_t>(moved.pieces.size());
    token.special = true;
    token.lstrip = piece == "<mask>";
    moved.added.push_back(std::move(token));
    moved.pieces.emplace_back(piece);
    moved.scores.push_back(0);
    moved.types.push_back(type);
    return static_cast<TokenId>(moved.pieces.size() - 1);
  };
  for (std::string_view piece : kind.first) add(piece, piece == "<unk>" ? PieceType::unknown : PieceType::control);
  for (size_t i = kind.kept; i < model.pieces.size(); ++i) {
    moved.pieces.push_back(model.pieces[i]);
    moved.scores.push_back(model.scores[i]);
    moved.types.push_back(model.types[i]);
  }
  const auto id_of = [&](std::string_view piece) {
    return static_cast<TokenId>(std::find(moved.pieces.begin(), moved.pieces.end(), piece) - moved.pieces.begin());
  };
  std::optional<TokenId> spoken;
  for (std::string_view code : kind.languages) {
    const TokenId id = add(code, PieceType::control);
    if (code == (language.empty() ? kind.usual_language : language)) spoken = id;
  }
  SpecialTokens& special = state.special;
  special.mask = add("<mask>", PieceType::control);
  special.cls = special.bos = moved.bos = id_of("<s>");
  special.sep = special.eos = moved.eos = id_of("</s>");
  special.unk = moved.unk = id_of("<unk>");
  special.pad = moved.pad = id_of("<pad>");
  if (kind.languages.empty()) {
    make_frame(special.bos, special.eos, special.eos, 0, state.frame);
    double_separator(*special.eos, state.frame);
  } else if (spoken) {
    frame_languages(kind, *spoken, *special.eos, state.frame);
  } else {
    return fail(Code::tokenizer_invalid, "src_lang is '{}', which is none of the model's languages", language);
  }
  model = std::move(moved);
  return {};
}

}  // namespace tessera::text
