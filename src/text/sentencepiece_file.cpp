// The protobuf of a SentencePiece .model file (sentencepiece_model.proto).
#include "base/result.h"
#include "formats/protobuf.h"
#include "text/sentencepiece.h"

namespace tessera::text {
namespace {

Status read_piece(protobuf::Reader r, SentencePieceModel& model) {
  std::string piece;
  float score = 0;
  int32_t type = 1;
  while (r.next()) {
    switch (r.number()) {
      case 1:
        piece = r.string();
        break;
      case 2:
        score = r.float32();
        break;
      case 3:
        type = r.int32();
        break;
    }
  }
  TESSERA_TRY(r.status());
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

Status read_trainer(protobuf::Reader r, SentencePieceModel& model, Ids& ids) {
  int32_t kind = 1;
  while (r.next()) {
    switch (r.number()) {
      case 3:
        kind = r.int32();
        break;
      case 24:
        model.whitespace_is_suffix = r.uint64() != 0;
        break;
      case 35:
        model.byte_fallback = r.uint64() != 0;
        break;
      case 40:
        ids.unk = r.int32();
        break;
      case 41:
        ids.bos = r.int32();
        break;
      case 42:
        ids.eos = r.int32();
        break;
      case 43:
        ids.pad = r.int32();
        break;
      case 44:
        model.unknown_surface = r.string();
        break;
    }
  }
  TESSERA_TRY(r.status());
  if (kind < 1 || kind > 4)
    return fail(Code::unsupported_feature, "the SentencePiece model has the type {}, which is not known", kind);
  model.kind = static_cast<SentencePieceModel::Kind>(kind);
  return {};
}

Status read_normalizer_spec(protobuf::Reader r, SentencePieceModel& model) {
  while (r.next()) {
    switch (r.number()) {
      case 2: {
        TESSERA_ASSIGN(model.charsmap, Charsmap::parse(r.string()));
        break;
      }
      case 3:
        model.add_dummy_prefix = r.uint64() != 0;
        break;
      case 4:
        model.remove_extra_whitespaces = r.uint64() != 0;
        break;
      case 5:
        model.escape_whitespaces = r.uint64() != 0;
        break;
    }
  }
  return r.status();
}

}  // namespace

Result<SentencePieceModel> parse_sentencepiece(std::string_view file) {
  SentencePieceModel model;
  Ids ids;
  protobuf::Reader r(std::as_bytes(std::span(file)));
  while (r.next()) {
    switch (r.number()) {
      case 1:
        TESSERA_TRY(read_piece(r.message(), model));
        break;
      case 2:
        TESSERA_TRY(read_trainer(r.message(), model, ids));
        break;
      case 3:
        TESSERA_TRY(read_normalizer_spec(r.message(), model));
        break;
    }
  }
  TESSERA_TRY(r.status());
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
