// The wire format of Protocol Buffers (https://protobuf.dev/programming-guides/encoding), read in place and written.
// The reader is for untrusted bytes: it allocates nothing but what callers ask for, never recurses, and takes time
// linear in the message.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera::protobuf {

using Bytes = std::span<const std::byte>;

enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, group_start = 3, group_end = 4, fixed32 = 5 };

// Messages may stand inside each other this deep. Protobuf's own libraries stop at the same depth.
constexpr int kMaxDepth = 100;

// Walks the fields of one message:
//
//   Reader r(file);
//   while (r.next()) {
//     switch (r.number()) {
//       case 1: model.version = r.int64(); break;
//       case 7: TESSERA_TRY(parse_graph(r.message(), model.graph)); break;
//     }                                // fields that no case takes are skipped
//   }
//   return r.status();
//
// The first fault (E0103 for a length past the end, E0104 else) is kept: next() then returns false, values are 0 or
// empty, and status() tells it with its position. What it hands out points into the bytes that it was given.
class Reader {
 public:
  explicit Reader(Bytes message) : origin_(message.data()), at_(message.data()), end_(at_ + message.size()) {}

  // Steps to the next field. False at the end, and after a fault.
  bool next();
  uint32_t number() const { return number_; }
  Wire wire() const { return wire_; }
  Status status() const;
  bool failed() const { return fault_ != Fault::none; }
  // What has not been walked yet: the whole message before the first next().
  Bytes rest() const { return {at_, end_}; }

  // The current field's value. A wire type that the field cannot have is a fault.
  uint64_t uint64() { return expect(Wire::varint) ? scalar_ : 0; }
  int64_t int64() { return static_cast<int64_t>(uint64()); }
  int32_t int32() { return static_cast<int32_t>(uint64()); }  // protobuf cuts longer varints too
  float float32() { return expect(Wire::fixed32) ? std::bit_cast<float>(static_cast<uint32_t>(scalar_)) : 0.0f; }
  double float64() { return expect(Wire::fixed64) ? std::bit_cast<double>(scalar_) : 0.0; }
  Bytes bytes() { return expect(Wire::bytes) ? bytes_ : Bytes(); }
  std::string_view string();
  // A reader of the embedded message, one level deeper.
  Reader message();

  // Appends a repeated field's values, whether packed or not.
  void append(std::vector<int64_t>& values);
  void append(std::vector<float>& values);

 private:
  enum class Fault : uint8_t { none, past_end, bad_varint, bad_tag, bad_group, too_deep, wrong_wire, bad_packing };

  bool fail(Fault fault);
  bool expect(Wire wire) { return wire_ == wire ? !failed() : fail(Fault::wrong_wire); }
  bool read_varint(uint64_t& value);
  bool read_payload();
  bool skip_group();

  const std::byte* origin_;  // of the outermost message: positions in errors count from here
  const std::byte* at_;
  const std::byte* end_;
  const std::byte* field_ = nullptr;  // where the current field's tag stands
  uint64_t scalar_ = 0;
  Bytes bytes_;
  uint32_t number_ = 0;
  Wire wire_ = Wire::varint;
  Fault fault_ = Fault::none;
  int depth_ = 0;
};

// Reads the varints of a packed field, or of any run of them.
class Varints {
 public:
  explicit Varints(Bytes run) : at_(run.data()), end_(at_ + run.size()) {}
  // False at the end, and when the rest is no varint: then at_end() is false.
  bool next(uint64_t& value);
  bool at_end() const { return at_ == end_; }

 private:
  const std::byte* at_;
  const std::byte* end_;
};

// Appends fields to a message. Field numbers are the caller's constants in [1, 2^29).
class Writer {
 public:
  void varint(uint32_t number, uint64_t value);
  void int64(uint32_t number, int64_t value) { varint(number, static_cast<uint64_t>(value)); }
  void float32(uint32_t number, float value);
  void float64(uint32_t number, double value);
  void bytes(uint32_t number, Bytes value);
  void string(uint32_t number, std::string_view value) { bytes(number, std::as_bytes(std::span(value))); }
  void message(uint32_t number, const Writer& value) { string(number, value.out_); }
  void packed(uint32_t number, std::span<const int64_t> values);
  void packed(uint32_t number, std::span<const float> values);

  const std::string& result() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  void tag(uint32_t number, Wire wire) { append_varint(uint64_t{number} << 3 | static_cast<uint64_t>(wire)); }
  void append_varint(uint64_t value);
  void append_fixed(const void* data, size_t size) { out_.append(static_cast<const char*>(data), size); }

  std::string out_;
};

}  // namespace tessera::protobuf
