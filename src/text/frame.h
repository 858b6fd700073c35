// What stands around a text for the model: the `post_processor` of tokenizer.json.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::text {

struct FramePart {
  enum class Kind : uint8_t { inserted, first, second };
  Kind kind = Kind::first;
  int32_t type_id = 0;
  std::vector<uint32_t> ids = {};  // of inserted tokens
};

struct Frame {
  std::vector<FramePart> single = {{FramePart::Kind::first}};
  std::vector<FramePart> pair = {{FramePart::Kind::first}, {FramePart::Kind::second, 1}};
  // Offsets of byte-level tokens leave out the spaces at their ends; with `added_prefix_space` all but one at the front
  // of the text.
  bool trim_offsets = false;
  bool added_prefix_space = false;
};

// Where the tokenizer.json cuts long texts.
struct Truncation {
  enum class Strategy : uint8_t { longest_first, only_first, only_second };
  uint32_t max_length = 0;
  Strategy strategy = Strategy::longest_first;
  bool left = false;  // the beginning is cut off, not the end
};

// And fills short ones.
struct Padding {
  uint32_t length = 0;       // 0: only to the next multiple
  uint32_t multiple_of = 0;  // 0: none
  bool left = false;
  uint32_t id = 0;
  int32_t type_id = 0;
};

}  // namespace tessera::text
