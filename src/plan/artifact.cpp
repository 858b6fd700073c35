#include "plan/artifact.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"
#include "kernels/table.h"
#include "plan/verify.h"
#include "plan/wire.h"

namespace tessera::plan {
namespace {

// Not text, and damaged by tools that rewrite line ends; as PNG's signature.
constexpr char kMagic[8] = {'\x89', 'T', 'E', 'S', 'S', '\r', '\n', '\x1a'};
constexpr uint32_t kVersion = 2;
constexpr uint64_t kDataAlignment = 4096;    // a page: the mapping of the constants is not shared with the plan's
constexpr uint64_t kConstantAlignment = 64;  // a cache line, and the widest vector

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t reserved;
  uint64_t interface;  // checksum of the kernel table: plans name kernels and their attributes' order
  uint64_t plan_bytes;
  uint64_t plan_checksum;
  uint64_t data_offset;
  uint64_t data_bytes;
  uint64_t data_checksum;
  uint64_t header_checksum;  // of all before it
};
static_assert(sizeof(Header) == 72);

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// For accidents, not for adversaries: those are met by verification. Eight bytes a step, so that weights pass at the
// speed of memory.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    total_ += bytes.size();
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) mix(bytes, 8);
    if (!bytes.empty()) mix(bytes, bytes.size());
  }
  uint64_t value() const { return (state_ ^ total_) * 0x9e3779b97f4a7c15u; }

 private:
  void mix(std::span<const std::byte> bytes, size_t n) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), n);
    state_ = (state_ ^ word) * 0xff51afd7ed558ccdu;
    state_ ^= state_ >> 32;
  }
  uint64_t state_ = 0x2545f4914f6cdd1du;
  uint64_t total_ = 0;
};

uint64_t checksum(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.value();
}

uint64_t kernel_interface() {
  Checksum sum;
  for (const kernels::KernelDesc& desc : kernels::kernel_table())
    for (const char* text : {desc.op, desc.kernel, desc.types, desc.layouts})
      sum.add(std::as_bytes(std::span(text, std::strlen(text) + 1)));
  return sum.value();
}

uint64_t header_checksum(const Header& header) {
  return checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_checksum)));
}

struct ConstantRecord {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // from the start of the constants
  uint64_t bytes = 0;
};

template <class Wire, class T>
void wire_constant(Wire& wire, T& r) {
  wire(r.dtype);
  wire(r.shape);
  wire(r.offset);
  wire(r.bytes);
}

// Strings lie as their lengths and bytes.
std::string packed_strings(const Tensor& tensor) {
  WireWriter wire;
  wire(tensor.strings());
  return std::move(wire.bytes);
}

// Zeroes up to `position`, counted from `start`.
Status pad(AtomicFile& file, uint64_t position) {
  static constexpr char kZeroes[kDataAlignment] = {};
  while (file.position() < position)
    TESSERA_TRY(file.write(std::string_view(kZeroes, std::min(position - file.position(), kDataAlignment))));
  return {};
}

tl::unexpected<Error> damaged(std::string_view what) {
  return fail(Code::artifact_corrupt, "the artifact is damaged: {}", what);
}

Result<Header> read_header(std::span<const std::byte> bytes) {
  if (!is_artifact(bytes)) return damaged("it does not begin as an artifact does");
  Header header;
  if (bytes.size() < sizeof(header)) return damaged("it ends within its header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.version != kVersion)
    return fail(Code::artifact_version, "the artifact has version {}, this Tessera reads version {}", header.version,
                kVersion);
  if (header.header_checksum != header_checksum(header)) return damaged("its header does not fit its checksum");
  if (header.interface != kernel_interface())
    return fail(Code::artifact_version, "the artifact was compiled for another set of kernels than this Tessera has");
  const uint64_t size = bytes.size();
  if (header.plan_bytes > size - sizeof(header) || header.data_offset > size ||
      header.data_offset % kDataAlignment != 0 || header.data_offset < sizeof(header) + header.plan_bytes ||
      header.data_bytes != size - header.data_offset)
    return damaged("its parts do not fit its size");
  return header;
}

}  // namespace

Status write_artifact(const std::string& path, const Plan& plan, const Notes& notes) {
  WireWriter wire;
  wire_record(wire, plan);
  uint64_t offset = 0;
  Checksum data;
  wire(static_cast<uint64_t>(plan.constants.size()));
  std::vector<std::string> strings;  // by constant; empty for those that are no strings
  for (const Tensor& tensor : plan.constants) {
    strings.push_back(tensor.dtype() == DType::string ? packed_strings(tensor) : std::string());
    const uint64_t bytes = tensor.dtype() == DType::string ? strings.back().size() : tensor.bytes();
    const ConstantRecord record = {tensor.dtype(), tensor.shape(), offset, bytes};
    wire_constant(wire, record);
    offset = round_up(offset + bytes, kConstantAlignment);
  }
  wire(static_cast<uint64_t>(notes.size()));
  for (const auto& [name, text] : notes) {
    wire(name);
    wire(text);
  }
  auto bytes_of = [&](size_t i) {
    const Tensor& tensor = plan.constants[i];
    return tensor.dtype() == DType::string ? std::as_bytes(std::span(strings[i]))
                                           : std::span(static_cast<const std::byte*>(tensor.data()), tensor.bytes());
  };
  for (size_t i = 0; i < plan.constants.size(); ++i) data.add(bytes_of(i));

  Header header = {};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  header.version = kVersion;
  header.interface = kernel_interface();
  header.plan_bytes = wire.bytes.size();
  header.plan_checksum = checksum(std::as_bytes(std::span(wire.bytes)));
  header.data_offset = round_up(sizeof(header) + header.plan_bytes, kDataAlignment);
  header.data_bytes = offset;
  header.data_checksum = data.value();
  header.header_checksum = header_checksum(header);

  TESSERA_ASSIGN(AtomicFile file, AtomicFile::create(path));
  TESSERA_TRY(file.write(std::as_bytes(std::span(&header, 1))));
  TESSERA_TRY(file.write(wire.bytes));
  TESSERA_TRY(pad(file, header.data_offset));
  for (size_t i = 0; i < plan.constants.size(); ++i) {
    TESSERA_TRY(pad(file, header.data_offset + round_up(file.position() - header.data_offset, kConstantAlignment)));
    TESSERA_TRY(file.write(bytes_of(i)));
  }
  TESSERA_TRY(pad(file, header.data_offset + header.data_bytes));
  return file.commit();
}

bool is_artifact(std::span<const std::byte> bytes) {
  return bytes.size() >= sizeof(kMagic) && std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) == 0;
}

Result<Artifact> read_plan(std::span<const std::byte> bytes, std::span<const std::byte> data,
                           std::shared_ptr<const void> keep) {
  auto plan = std::make_shared<Plan>();
  Artifact artifact;
  WireReader wire(bytes);
  wire_record(wire, *plan);
  uint64_t count = 0;
  wire(count);
  for (uint64_t i = 0; i < count && wire.ok(); ++i) {
    ConstantRecord record;
    wire_constant(wire, record);
    if (!wire.ok() || static_cast<uint8_t>(record.dtype) >= kDTypeCount) return damaged("a constant is of no type");
    const Result<int64_t> elements = element_count(record.shape);
    if (!elements) return damaged(elements.error().message);
    if (const Status blocks = check_blocks(record.dtype, record.shape); !blocks) return damaged(blocks.error().message);
    if (record.offset > data.size() || record.bytes > data.size() - record.offset ||
        record.offset % kConstantAlignment != 0)
      return damaged("a constant lies outside of the file");
    const std::span<const std::byte> contents = data.subspan(record.offset, record.bytes);
    if (record.dtype == DType::string) {
      WireReader inner(contents);
      std::vector<std::string> strings;
      inner(strings);
      if (!inner.at_end() || strings.size() != static_cast<uint64_t>(*elements)) return damaged("a constant's strings");
      plan->constants.push_back(Tensor::of_strings(std::move(record.shape), std::move(strings)));
    } else {
      // Elements beyond 2^56 would overflow the size in bytes.
      if (*elements > (int64_t{1} << 56) || storage_bytes(record.dtype, *elements) != record.bytes)
        return damaged("a constant's size does not fit its shape");
      plan->constants.push_back(Tensor::borrow(record.dtype, std::move(record.shape), contents.data(), keep));
    }
  }
  wire(count);
  for (uint64_t i = 0; i < count && wire.ok(); ++i) {
    std::string name, text;
    wire(name);
    wire(text);
    artifact.notes[std::move(name)] = std::move(text);
  }
  if (!wire.at_end()) return damaged("its plan does not read");
  if (Status verified = verify(*plan); !verified) return damaged(verified.error().message);
  artifact.plan = std::move(plan);
  return artifact;
}

Result<Artifact> read_artifact(std::span<const std::byte> bytes, std::shared_ptr<const void> keep) {
  TESSERA_ASSIGN(const Header header, read_header(bytes));
  const auto plan = bytes.subspan(sizeof(header), header.plan_bytes);
  if (checksum(plan) != header.plan_checksum) return damaged("its plan does not fit its checksum");
  return read_plan(plan, bytes.subspan(header.data_offset), std::move(keep));
}

Result<Artifact> load_artifact(const std::string& path) {
  TESSERA_ASSIGN(const std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  Result<Artifact> artifact = read_artifact(file->bytes(), file);
  if (!artifact) return tl::unexpected(std::move(artifact).error().within("loading '" + path + "'"));
  return artifact;
}

Status verify_constants(std::span<const std::byte> bytes) {
  TESSERA_ASSIGN(const Header header, read_header(bytes));
  TESSERA_ASSIGN(const Artifact artifact, read_artifact(bytes, nullptr));
  Checksum sum;
  for (const Tensor& tensor : artifact.plan->constants) {
    const std::string strings = tensor.dtype() == DType::string ? packed_strings(tensor) : std::string();
    sum.add(tensor.dtype() == DType::string ? std::as_bytes(std::span(strings))
                                            : std::span(static_cast<const std::byte*>(tensor.data()), tensor.bytes()));
  }
  if (sum.value() != header.data_checksum) return damaged("its constants do not fit their checksum");
  return {};
}

}  // namespace tessera::plan
