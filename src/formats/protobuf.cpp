#include "formats/protobuf.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"

static_assert(std::endian::native == std::endian::little, "fixed fields are read and written in place");

namespace tessera::protobuf {
namespace {

constexpr int kMaxVarintBytes = 10;

// Advances `at` past one varint; null when there is no whole one before `end`, or it passes 64 bits. `cut` tells which.
const std::byte* parse_varint(const std::byte* at, const std::byte* end, uint64_t& value, bool& cut) {
  uint64_t result = 0;
  for (int i = 0; i < kMaxVarintBytes; ++i) {
    if (at == end) {
      cut = true;
      return nullptr;
    }
    const uint64_t byte = std::to_integer<uint64_t>(*at++);
    result |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      // The tenth byte holds bit 63 only.
      if (i == kMaxVarintBytes - 1 && byte > 1) break;
      value = result;
      return at;
    }
  }
  cut = false;
  return nullptr;
}

}  // namespace

bool Reader::fail(Fault fault) {
  if (fault_ == Fault::none) fault_ = fault;
  return false;
}

bool Reader::read_varint(uint64_t& value) {
  bool cut = false;
  const std::byte* next = parse_varint(at_, end_, value, cut);
  if (next == nullptr) return fail(cut ? Fault::past_end : Fault::bad_varint);
  at_ = next;
  return true;
}

bool Reader::read_payload() {
  switch (wire_) {
    case Wire::varint:
      return read_varint(scalar_);
    case Wire::fixed64:
    case Wire::fixed32: {
      const size_t size = wire_ == Wire::fixed64 ? 8 : 4;
      if (static_cast<size_t>(end_ - at_) < size) return fail(Fault::past_end);
      scalar_ = 0;
      std::memcpy(&scalar_, at_, size);
      at_ += size;
      return true;
    }
    case Wire::bytes: {
      uint64_t size = 0;
      if (!read_varint(size)) return false;
      if (size > static_cast<uint64_t>(end_ - at_)) return fail(Fault::past_end);
      bytes_ = Bytes(at_, static_cast<size_t>(size));
      at_ += size;
      return true;
    }
    case Wire::group_start:
    case Wire::group_end:
      return true;
  }
  return fail(Fault::bad_tag);
}

// Groups are long gone from every format that we read, but old writers may have left unknown ones.
bool Reader::skip_group() {
  uint32_t open[kMaxDepth];
  int depth = 0;
  open[depth++] = number_;
  while (depth > 0) {
    uint64_t tag = 0;
    if (!read_varint(tag)) return false;
    const uint32_t number = static_cast<uint32_t>(tag >> 3);
    wire_ = static_cast<Wire>(tag & 7);
    if (tag > UINT32_MAX || number == 0) return fail(Fault::bad_tag);
    if (!read_payload()) return false;
    if (wire_ == Wire::group_start) {
      if (depth == kMaxDepth) return fail(Fault::too_deep);
      open[depth++] = number;
    } else if (wire_ == Wire::group_end && open[--depth] != number) {
      return fail(Fault::bad_group);
    }
  }
  return true;
}

bool Reader::next() {
  while (!failed() && at_ != end_) {
    field_ = at_;
    uint64_t tag = 0;
    if (!read_varint(tag)) return false;
    if (tag > UINT32_MAX || tag >> 3 == 0) return fail(Fault::bad_tag);
    number_ = static_cast<uint32_t>(tag >> 3);
    wire_ = static_cast<Wire>(tag & 7);
    if (!read_payload()) return false;
    if (wire_ == Wire::group_end) return fail(Fault::bad_group);
    if (wire_ != Wire::group_start) return true;
    if (!skip_group()) return false;
  }
  return false;
}

std::string_view Reader::string() {
  const Bytes b = bytes();
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

Reader Reader::message() {
  Reader inner(bytes());
  inner.origin_ = origin_;
  inner.field_ = field_;
  inner.depth_ = depth_ + 1;
  // A fault here must reach the inner reader too: callers look at the status of the one that they read from.
  if (inner.depth_ > kMaxDepth) fail(Fault::too_deep);
  inner.fault_ = fault_;
  inner.number_ = number_;
  inner.wire_ = wire_;
  return inner;
}

void Reader::append(std::vector<int64_t>& values) {
  if (wire_ != Wire::bytes) {
    values.push_back(int64());
    return;
  }
  Varints run(bytes_);
  for (uint64_t value = 0; run.next(value);) values.push_back(static_cast<int64_t>(value));
  if (!run.at_end()) fail(Fault::bad_packing);
}

void Reader::append(std::vector<float>& values) {
  if (wire_ != Wire::bytes) {
    values.push_back(float32());
    return;
  }
  const size_t count = bytes_.size() / sizeof(float);
  if (bytes_.size() % sizeof(float) != 0) {
    fail(Fault::bad_packing);
  } else if (count > 0) {
    const size_t old = values.size();
    values.resize(old + count);
    std::memcpy(values.data() + old, bytes_.data(), bytes_.size());
  }
}

Status Reader::status() const {
  const size_t position = field_ == nullptr ? 0 : static_cast<size_t>(field_ - origin_);
  switch (fault_) {
    case Fault::none:
      return {};
    case Fault::past_end:
      return tessera::fail(Code::file_truncated, "the field at byte {} runs past byte {}, where its message ends",
                           position, end_ - origin_);
    case Fault::bad_varint:
      return tessera::fail(Code::file_malformed, "the integer at byte {} passes 64 bits", position);
    case Fault::bad_tag:
      return tessera::fail(Code::file_malformed, "byte {} starts no protobuf field", position);
    case Fault::bad_group:
      return tessera::fail(Code::file_malformed, "byte {} ends a group that does not stand open", position);
    case Fault::too_deep:
      return tessera::fail(Code::file_malformed, "the message at byte {} lies deeper than {} others", position,
                           kMaxDepth);
    case Fault::wrong_wire:
      return tessera::fail(Code::file_malformed, "field {} at byte {} has wire type {}, which its kind cannot have",
                           number_, position, static_cast<int>(wire_));
    case Fault::bad_packing:
      return tessera::fail(Code::file_malformed, "the {} bytes of the packed field at byte {} are not whole values",
                           bytes_.size(), position);
  }
  return {};
}

bool Varints::next(uint64_t& value) {
  bool cut = false;
  if (at_ == end_) return false;
  const std::byte* next = parse_varint(at_, end_, value, cut);
  if (next == nullptr) return false;
  at_ = next;
  return true;
}

void Writer::append_varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
  out_.push_back(static_cast<char>(value));
}

void Writer::varint(uint32_t number, uint64_t value) {
  tag(number, Wire::varint);
  append_varint(value);
}

void Writer::float32(uint32_t number, float value) {
  tag(number, Wire::fixed32);
  append_fixed(&value, sizeof value);
}

void Writer::float64(uint32_t number, double value) {
  tag(number, Wire::fixed64);
  append_fixed(&value, sizeof value);
}

void Writer::bytes(uint32_t number, Bytes value) {
  tag(number, Wire::bytes);
  append_varint(value.size());
  if (!value.empty()) append_fixed(value.data(), value.size());
}

void Writer::packed(uint32_t number, std::span<const int64_t> values) {
  Writer run;
  for (int64_t value : values) run.append_varint(static_cast<uint64_t>(value));
  string(number, run.out_);
}

void Writer::packed(uint32_t number, std::span<const float> values) { bytes(number, std::as_bytes(values)); }

}  // namespace tessera::protobuf
