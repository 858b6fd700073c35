// Models that were trained with fairseq: the ids of their tokens are not those of their SentencePiece models.
#pragma once

#include "text/readers.h"
#include "text/sentencepiece.h"

namespace tessera::text {

struct FairseqKind;

// Null for classes whose ids are the model's own.
const FairseqKind* find_fairseq(std::string_view tokenizer_class);

// Gives the model's pieces fairseq's ids, adds the tokens that it lacks, and says what stands around a text.
// `language`: of the text, where the model has several ("" for the usual one). E0209 for a model of another form.
Status to_fairseq(const FairseqKind& kind, std::string_view language, SentencePieceModel& model, TokenizerState& state);

}  // namespace tessera::text
