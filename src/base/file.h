// Files: read-only mappings, bounded reads, atomic writes, and paths that must stay inside a folder.
// Paths are strings so that this header stays light. Everything here may be called from any thread; one AtomicFile
// belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera {

// An open file descriptor, closed at the end of its life.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // Gives the descriptor up to the caller.
  int release();

 private:
  int fd_ = -1;
};

// A regular file mapped read-only. Empty files are fine. The mapping lives as long as the object, so views into it are
// kept alive by a shared_ptr to it. A file that another process shortens while mapped raises SIGBUS on access, as with
// every mapping.
class MappedFile {
 public:
  // E0101 when the path cannot be opened or is not a regular file (a folder, a pipe, a device); E0503 when the address
  // space does not hold it.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  // Opens `relative` inside `folder` under the rules of resolve_inside, without a window between check and use.
  static Result<std::shared_ptr<const MappedFile>> open_inside(const std::string& folder, std::string_view relative);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  size_t size() const { return size_; }
  const std::byte* data() const { return data_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  // Gives the memory of the pages that lie wholly inside [offset, offset + length) back to the machine. Later reads
  // are still right: they fetch the page again. Ranges past the end are cut.
  void release(size_t offset, size_t length) const;
  // The same for memory of any mapped file of this process; does nothing for other memory.
  static void release_at(const void* data, size_t bytes);
  // Asks the machine to start reading [offset, offset + length); returns at once.
  void prefetch(size_t offset, size_t length) const;

 private:
  MappedFile(std::string path, const std::byte* data, size_t size);
  static Result<std::shared_ptr<const MappedFile>> map(FileDescriptor file, std::string path);

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole of a regular file. E0101 as MappedFile::open; E0104 when it holds more than `max_bytes`.
Result<std::string> read_file(const std::string& path, size_t max_bytes);

// The path folder/relative, with `.` and `a/..` removed, once it is known that it exists and stays inside `folder`.
// E0105 when `relative` is empty, absolute, holds a zero byte, climbs out by `..`, or passes through a symbolic link
// below `folder` (links on the way to `folder` itself are the caller's choice); E0101 when a part does not exist.
Result<std::string> resolve_inside(const std::string& folder, std::string_view relative);

// Whether a write must survive a power cut (fsync of the file and its folder) or only be seen whole by other processes.
enum class Durability { process, disk };

// A file that appears whole or not at all: written under a temporary name in the same folder and renamed by commit().
// Destroyed before that, it leaves nothing. An existing file keeps its permissions; a link to a file is written
// through. All failures are E0102 with the reason; after one, every later call repeats it.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // Appends. Small writes are gathered.
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  // Bytes written so far.
  uint64_t position() const { return position_; }
  // Where what has been written so far can be read until commit().
  Result<std::string> readable();
  // Nothing may be written after it.
  Status commit(Durability durability = Durability::process);

 private:
  AtomicFile(std::string path, std::string temporary, FileDescriptor file);
  Status flush();
  Status write_through(std::span<const std::byte> bytes);

  std::string path_;       // where the file will appear
  std::string temporary_;  // where it is until then; empty after commit, or once moved from
  FileDescriptor file_;
  std::vector<std::byte> pending_;
  uint64_t position_ = 0;
  int failed_ = 0;  // errno of the first failure
};

Status write_file_atomic(const std::string& path, std::span<const std::byte> bytes,
                         Durability durability = Durability::process);
Status write_file_atomic(const std::string& path, std::string_view text, Durability durability = Durability::process);

}  // namespace tessera
