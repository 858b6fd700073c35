#include "text/vocabulary.h"

#include <cstring>

#include "base/result.h"

namespace tessera::text {
namespace {

__extension__ using Uint128 = unsigned __int128;

uint64_t mix(uint64_t a, uint64_t b) {
  const Uint128 product = static_cast<Uint128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t load(const char* data, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, data, bytes);
  return value;
}

}  // namespace

// Eight bytes a step, each folded by a 64 x 64 bit multiplication. The constants are odd and have about as many ones as
// zeros (digits of pi).
uint64_t hash_bytes(std::string_view bytes) {
  uint64_t state = 0x243F6A8885A308D3 ^ bytes.size();
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) state = mix(state ^ load(bytes.data() + at, 8), 0x13198A2E03707345);
  if (at < bytes.size()) state = mix(state ^ load(bytes.data() + at, bytes.size() - at), 0xA4093822299F31D1);
  return mix(state, 0x082EFA98EC4E6C89);
}

void Vocabulary::reserve(size_t tokens, size_t bytes) {
  tokens = std::min<size_t>(tokens, kMaxIds);
  bytes_.reserve(bytes);
  places_.reserve(tokens);
  size_t slots = 16;
  while (slots < tokens * 2) slots *= 2;
  if (slots > slots_.size() && count_ == 0) slots_.assign(slots, {});
}

Status Vocabulary::add(std::string_view token, uint64_t id) {
  if (id >= kMaxIds) return fail(Code::tokenizer_invalid, "token '{}' has the id {}, past {}", token, id, kMaxIds);
  if (token.size() > kMaxTokenBytes)
    return fail(Code::tokenizer_invalid, "token {} has {} bytes, more than {}", id, token.size(), kMaxTokenBytes);
  if (has(id)) {
    if (this->token(id) == token) return {};
    return fail(Code::tokenizer_invalid, "tokens '{}' and '{}' both have the id {}", this->token(id), token, id);
  }
  if (bytes_.size() + token.size() >= kNone)
    return fail(Code::tokenizer_invalid, "the vocabulary's tokens take more than 4 GiB");
  if (id >= places_.size()) places_.resize(id + 1);
  places_[id] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(token.size())};
  bytes_ += token;
  longest_ = std::max(longest_, token.size());
  if ((count_ + 1) * 2 > slots_.size()) grow();
  const uint64_t hash = hash_bytes(token);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot& slot = slots_[i];
    if (slot.id == kNone) {
      slot = {static_cast<uint32_t>(id), static_cast<uint32_t>(hash >> 32), places_[id]};
      ++count_;
      return {};
    }
    if (slot.hash == static_cast<uint32_t>(hash >> 32) && this->token(slot.id) == token) return {};
  }
}

void Vocabulary::grow() {
  std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id == kNone) continue;
    size_t i = hash_bytes(token(slot.id)) & mask;
    while (slots_[i].id != kNone) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

uint32_t Vocabulary::find(std::string_view token, uint64_t hash) const {
  if (slots_.empty()) return kNone;
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.id == kNone) return kNone;
    if (slot.hash == static_cast<uint32_t>(hash >> 32) &&
        std::string_view(bytes_).substr(slot.place.begin, slot.place.length) == token)
      return slot.id;
  }
}

}  // namespace tessera::text
