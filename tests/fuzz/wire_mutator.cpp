// Mutates protobuf messages as trees of fields, so that the lengths around a change stay right: bytes flipped blindly
// seldom come past the wire reader. What fields mean is not known here: a payload that reads as a message is one.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "formats/protobuf.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace tessera::protobuf {
namespace {

constexpr int kDeepest = 24;

struct Field {
  uint32_t number = 0;
  Wire wire = Wire::varint;
  uint64_t scalar = 0;
  std::string bytes;            // of a leaf
  std::vector<Field> children;  // of a message
};

bool parse(std::string_view text, int depth, std::vector<Field>& fields) {
  size_t at = 0;
  auto varint = [&](uint64_t& value) {
    value = 0;
    for (int shift = 0; at < text.size() && shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(text[at++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  };
  while (at < text.size()) {
    uint64_t tag = 0, size = 0;
    Field field;
    if (!varint(tag) || tag >> 3 == 0 || tag >> 3 > 64) return false;
    field.number = static_cast<uint32_t>(tag >> 3);
    field.wire = static_cast<Wire>(tag & 7);
    if (field.wire == Wire::varint) {
      if (!varint(field.scalar)) return false;
    } else if (field.wire == Wire::fixed32 || field.wire == Wire::fixed64) {
      size = field.wire == Wire::fixed32 ? 4 : 8;
      if (text.size() - at < size) return false;
      std::memcpy(&field.scalar, text.data() + at, size);
      at += size;
    } else if (field.wire == Wire::bytes) {
      if (!varint(size) || size > text.size() - at) return false;
      field.bytes = text.substr(at, size);
      at += size;
      if (!field.bytes.empty() && depth < kDeepest && parse(field.bytes, depth + 1, field.children)) {
        field.bytes.clear();
      } else {
        field.children.clear();
      }
    } else {
      return false;
    }
    fields.push_back(std::move(field));
  }
  return true;
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

std::string serialize(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& field : fields) {
    append_varint(out, static_cast<uint64_t>(field.number) << 3 | static_cast<uint64_t>(field.wire));
    if (field.wire == Wire::varint) {
      append_varint(out, field.scalar);
    } else if (field.wire == Wire::bytes) {
      const std::string payload = field.children.empty() ? field.bytes : serialize(field.children);
      append_varint(out, payload.size());
      out += payload;
    } else {
      out.append(reinterpret_cast<const char*>(&field.scalar), field.wire == Wire::fixed32 ? 4 : 8);
    }
  }
  return out;
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  void mutate(std::vector<Field>& root) {
    std::vector<std::vector<Field>*> lists;
    collect(root, lists);
    std::vector<Field>& list = *lists[pick(lists.size())];
    if (list.empty()) return;
    const size_t at = pick(list.size());
    switch (pick(8)) {
      case 0:
        list.erase(list.begin() + static_cast<ptrdiff_t>(at));
        return;
      case 1:
        list.insert(list.begin() + static_cast<ptrdiff_t>(pick(list.size() + 1)), Field(list[at]));
        return;
      case 2:
        std::swap(list[at], list[pick(list.size())]);
        return;
      case 3:  // another field of the same number, from anywhere
        if (const Field* other = alike(root, list[at])) {
          const Field copy = *other;
          list[at] = copy;
        }
        return;
      default:
        change(list[at], root);
    }
  }

 private:
  size_t pick(size_t n) { return n < 2 ? 0 : std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  static void collect(std::vector<Field>& fields, std::vector<std::vector<Field>*>& lists) {
    lists.push_back(&fields);
    for (Field& field : fields)
      if (!field.children.empty()) collect(field.children, lists);
  }

  static void find_alike(const std::vector<Field>& fields, const Field& like, std::vector<const Field*>& found) {
    for (const Field& field : fields) {
      if (field.number == like.number && field.wire == like.wire && &field != &like) found.push_back(&field);
      find_alike(field.children, like, found);
    }
  }
  const Field* alike(const std::vector<Field>& root, const Field& like) {
    std::vector<const Field*> found;
    find_alike(root, like, found);
    return found.empty() ? nullptr : found[pick(found.size())];
  }

  void change(Field& field, const std::vector<Field>& root) {
    static constexpr int64_t kNumbers[] = {
        0,         1,        2,  3,   4,       5,         7,         8,         13,           16,
        -1,        -2,       -7, 127, 1 << 16, INT32_MAX, INT32_MIN, 1LL << 33, -(1LL << 40), 1LL << 62,
        INT64_MAX, INT64_MIN};
    if (!field.children.empty()) {
      mutate(field.children);
    } else if (field.wire == Wire::bytes) {
      if (const Field* other = pick(2) == 0 ? alike(root, field) : nullptr;
          other != nullptr && other->children.empty()) {
        field.bytes = std::string(other->bytes);
        return;
      }
      std::vector<uint8_t> data(field.bytes.begin(), field.bytes.end());
      const size_t size = data.size();
      data.resize(size + 16);
      data.resize(LLVMFuzzerMutate(data.data(), size, data.size()));
      field.bytes.assign(data.begin(), data.end());
    } else if (field.wire == Wire::varint && pick(3) == 0) {
      field.scalar += pick(2) == 0 ? 1 : static_cast<uint64_t>(-1);
    } else if (field.wire == Wire::varint) {
      field.scalar = static_cast<uint64_t>(kNumbers[pick(std::size(kNumbers))]);
    } else {
      LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(&field.scalar), 4, 4);
    }
  }

  std::mt19937 random_;
};

}  // namespace
}  // namespace tessera::protobuf

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  using namespace tessera::protobuf;
  std::vector<Field> fields;
  // Now and then the bytes themselves, which also tests the wire reader.
  if (seed % 16 == 0 || !parse({reinterpret_cast<const char*>(data), size}, 0, fields))
    return LLVMFuzzerMutate(data, size, most);
  Mutator mutator(seed);
  for (unsigned times = 1 + seed / 16 % 3; times > 0; --times) mutator.mutate(fields);
  const std::string out = serialize(fields);
  if (out.empty() || out.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, out.data(), out.size());
  return out.size();
}
