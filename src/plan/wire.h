// How plans lie in a file: one description of each record, used for writing and for reading. Little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "plan/plan.h"

namespace tessera::plan {

static_assert(std::endian::native == std::endian::little);

// Appends records to a string.
class WireWriter {
 public:
  std::string bytes;

  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void operator()(const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<uint64_t>(text.size()));
    bytes += text;
  }
  template <class T>
  void operator()(const std::vector<T>& items);
};

// Reads records from bytes that may hold anything. After the first thing that does not fit, ok() is false and all reads
// give zeroes. Never allocates more than a small multiple of the bytes that it was given.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && bytes_.empty(); }
  void fail() {
    ok_ = false;
    bytes_ = {};
  }

  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void operator()(T& value) {
    value = T();
    if (bytes_.size() < sizeof(T)) return fail();
    if constexpr (std::is_same_v<T, bool>) {
      const auto byte = std::to_integer<uint8_t>(bytes_[0]);
      if (byte > 1) return fail();
      value = byte != 0;
    } else {
      std::memcpy(&value, bytes_.data(), sizeof(T));
    }
    bytes_ = bytes_.subspan(sizeof(T));
  }
  void operator()(std::string& text) {
    const size_t size = length();
    text.assign(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
  }
  template <class T>
  void operator()(std::vector<T>& items);

 private:
  // A number of things of at least a byte each.
  size_t length() {
    uint64_t size = 0;
    (*this)(size);
    if (size > bytes_.size()) fail();
    return ok_ ? static_cast<size_t>(size) : 0;
  }

  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

// The records. `Wire` is one of the two above; a record is const when it is written.
template <class Wire, class T>
void wire_record(Wire& wire, T& r) {
  using U = std::remove_const_t<T>;
  auto all = [&](auto&... fields) { (wire(fields), ...); };
  if constexpr (std::is_same_v<U, List>) {
    all(r.first, r.count);
  } else if constexpr (std::is_same_v<U, Expr>) {
    all(r.op, r.a, r.b, r.value);
  } else if constexpr (std::is_same_v<U, Symbol>) {
    all(r.name, r.lo, r.hi, r.source, r.value, r.index);
  } else if constexpr (std::is_same_v<U, Value>) {
    all(r.kind, r.dtype, r.storage, r.ranked, r.packed, r.index, r.base, r.offset);
    wire_record(wire, r.shape);
    wire_record(wire, r.strides);
    all(r.name);
  } else if constexpr (std::is_same_v<U, Attr>) {
    all(r.i, r.f);
    wire_record(wire, r.list);
  } else if constexpr (std::is_same_v<U, Step>) {
    all(r.kind, r.op);
    wire_record(wire, r.operands);
    wire_record(wire, r.results);
    all(r.attrs, r.n_attrs, r.routines[0], r.routines[1], r.carried, r.scanned, r.source);
  } else if constexpr (std::is_same_v<U, Guard>) {
    all(r.kind, r.a, r.b, r.what);
  } else if constexpr (std::is_same_v<U, Routine>) {
    all(r.name, r.symbols, r.exprs, r.lists, r.values, r.attrs, r.steps, r.guards, r.inputs, r.outputs, r.output_names);
  } else if constexpr (std::is_same_v<U, KernelRef>) {
    all(r.kernel, r.op);
  } else if constexpr (std::is_same_v<U, HostOp>) {
    all(r.op, r.blob);
  } else {
    static_assert(std::is_same_v<U, Plan>, "a record of a plan");
    all(r.routines, r.kernels, r.host_ops, r.sources, r.isa);  // constants lie elsewhere
  }
}

template <class Wire, class T>
void wire_item(Wire& wire, T& item) {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_arithmetic_v<U> || std::is_enum_v<U> || std::is_same_v<U, std::string>)
    wire(item);
  else
    wire_record(wire, item);
}

template <class T>
void WireWriter::operator()(const std::vector<T>& items) {
  (*this)(static_cast<uint64_t>(items.size()));
  for (const T& item : items) wire_item(*this, item);
}

template <class T>
void WireReader::operator()(std::vector<T>& items) {
  const size_t count = length();
  items.clear();
  // Grows as items are found, not as the count promises.
  for (size_t i = 0; i < count && ok_; ++i) wire_item(*this, items.emplace_back());
}

}  // namespace tessera::plan
