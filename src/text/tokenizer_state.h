// The parts of a tokenizer, as the readers of the various files make them. Included only by sources of this folder.
#pragma once

#include <optional>
#include <vector>

#include "text/engine.h"
#include "text/frame.h"
#include "text/tokenizer.h"

namespace tessera::text {

struct TokenizerState {
  std::unique_ptr<const Engine> engine;
  Frame frame;
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
  SpecialTokens special;
  std::vector<NamedTemplate> chat_templates;
};

}  // namespace tessera::text
