// The protobuf of a SentencePiece .model file (sentencepiece_model.proto).
#include "base/result.h"
#include "formats/protobuf.h"
#include "text/sentencepiece.h"

namespace tessera::text {
namespace {

// Calls take(reader) at each field of a message.
template <class Take>
Status each_field(protobuf::Reader r, const Take& take) {
  while (r.next()) TESSERA_TRY(take(r));
  return r.status();
}

Status read_piece(protobuf::Reader message, SentencePieceModel& model) {
  std::string piece;
  float score = 0;
  int32_t type = 1;
  TESSERA_TRY(each_field(message, [&](protobuf::Reader& r) -> Status {
    if (r.number() == 1) piece = r.string();
    if (r.number() == 2) score = r.float32();
    if (r.number() == 3) type = r.int32();
    return {};
  }));
  if (type < 1 || type > 6) return fail(Code::file_malformed, "piece {} has the type {}", model.pieces.size(), type);
  if (piece.empty()) return fail(Code::tokenizer_invalid, "piece {} is empty", model.pieces.size());
  if (model.pieces.size() >= Vocabulary::kMaxIds)
    return fail(Code::tokenizer_invalid, "the model has more than {} pieces", Vocabulary::kMaxIds);
  model.pieces.push_back(std::move(piece));
  model.scores.push_back(score);
  model.types.push_back(static_cast<PieceType>(type));
  return {};
}

struct Ids {
  int32_t unk = 0, bos = 1, eos = 2, pad = -1;  // -1: none
};

Status read_trainer(protobuf::Reader message, SentencePieceModel& model, Ids& ids) {
  int32_t kind = 1;
  const std::pair<uint32_t, int32_t*> integers[] = {
      {3, &kind}, {40, &ids.unk}, {41, &ids.bos}, {42, &ids.eos}, {43, &ids.pad}};
  TESSERA_TRY(each_field(message, [&](protobuf::Reader& r) -> Status {
    for (const auto& [number, to] : integers)
      if (r.number() == number) *to = r.int32();
    if (r.number() == 24) model.whitespace_is_suffix = r.uint64() != 0;
    if (r.number() == 35) model.byte_fallback = r.uint64() != 0;
    if (r.number() == 44) model.unknown_surface = r.string();
    return {};
  }));
  if (kind < 1 || kind > 4)
    return fail(Code::unsupported_feature, "the SentencePiece model has the type {}, which is not known", kind);
  model.kind = static_cast<SentencePieceModel::Kind>(kind);
  return {};
}

Status read_normalizer_spec(protobuf::Reader message, SentencePieceModel& model) {
  const std::pair<uint32_t, bool*> flags[] = {
      {3, &model.add_dummy_prefix}, {4, &model.remove_extra_whitespaces}, {5, &model.escape_whitespaces}};
  return each_field(message, [&](protobuf::Reader& r) -> Status {
    if (r.number() == 2) {
      TESSERA_ASSIGN(model.charsmap, Charsmap::parse(r.string()));
    }
    for (const auto& [number, flag] : flags)
      if (r.number() == number) *flag = r.uint64() != 0;
    return {};
  });
}

}  // namespace

Result<SentencePieceModel> parse_sentencepiece(std::string_view file) {
  SentencePieceModel model;
  Ids ids;
  TESSERA_TRY(each_field(protobuf::Reader(std::as_bytes(std::span(file))), [&](protobuf::Reader& r) -> Status {
    if (r.number() == 1) return read_piece(r.message(), model);
    if (r.number() == 2) return read_trainer(r.message(), model, ids);
    return r.number() == 3 ? read_normalizer_spec(r.message(), model) : Status();
  }));
  const auto keep = [&](int32_t id, std::optional<TokenId>& out) {
    if (id >= 0 && static_cast<size_t>(id) < model.pieces.size()) out = id;
  };
  keep(ids.unk, model.unk);
  keep(ids.bos, model.bos);
  keep(ids.eos, model.eos);
  keep(ids.pad, model.pad);
  return model;
}

}  // namespace tessera::text
