#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>

#include "base/result.h"

namespace tessera {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

// open(2) and openat(2), again when a signal interrupts them.
int open_at(int folder, const char* path, int flags) {
  int fd;
  do fd = ::openat(folder, path, flags | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  return fd;
}

// The mapped files of this process. Never destroyed: files may outlive static objects.
struct Mappings {
  std::mutex mutex;
  std::map<const std::byte*, const MappedFile*> by_address;
};
Mappings& mappings() {
  static auto* all = new Mappings;
  return *all;
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a link";
  return "a device";
}

// The size of a regular file, or E0101.
Result<size_t> regular_size(const FileDescriptor& file, const std::string& path) {
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return fail(Code::file_not_found, "'{}': {}", path, reason(errno));
  if (!S_ISREG(info.st_mode))
    return fail(Code::file_not_found, "'{}' is {}, not a regular file", path, kind_of(info.st_mode));
  return static_cast<size_t>(info.st_size);
}

Result<FileDescriptor> open_for_reading(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    return fail(Code::file_not_found, "a path holds a zero byte at {}, and no file name can", path.find('\0'));
  // O_NONBLOCK: opening a pipe without a writer would otherwise wait for one. It changes nothing for regular files.
  FileDescriptor file(open_at(AT_FDCWD, path.c_str(), O_RDONLY | O_NONBLOCK));
  if (!file.valid()) return fail(Code::file_not_found, "'{}' cannot be opened: {}", path, reason(errno));
  return file;
}

// The parts of `relative` after removing `.` and `name/..`, or E0105. Removing them by name alone is right because no
// part may be a link.
Result<std::vector<std::string>> parts_inside(const std::string& folder, std::string_view relative) {
  if (relative.empty()) return fail(Code::path_escapes, "an empty path names no file in '{}'", folder);
  if (relative.find('\0') != std::string_view::npos)
    return fail(Code::path_escapes, "a path in '{}' holds a zero byte at {}", folder, relative.find('\0'));
  if (relative.front() == '/')
    return fail(Code::path_escapes, "'{}' is absolute, but must lie in '{}'", relative, folder);
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= relative.size();) {
    size_t end = std::min(relative.find('/', begin), relative.size());
    std::string_view part = relative.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      parts.emplace_back(part);
    } else if (parts.empty()) {
      return fail(Code::path_escapes, "'{}' leads out of the folder '{}'", relative, folder);
    } else {
      parts.pop_back();
    }
  }
  if (parts.empty())
    return fail(Code::path_escapes, "'{}' names the folder '{}' itself, not a file in it", relative, folder);
  return parts;
}

std::string join_path(const std::string& folder, const std::vector<std::string>& parts) {
  std::string path = folder;
  for (const std::string& part : parts) {
    if (!path.empty() && path.back() != '/') path += '/';
    path += part;
  }
  return path;
}

// Walks from `folder` to the last part one openat at a time, so that a link put in place meanwhile is refused too. The
// last part is opened with `flags`.
Result<FileDescriptor> open_parts(const std::string& folder, const std::vector<std::string>& parts, int flags) {
  FileDescriptor at(open_at(AT_FDCWD, folder.empty() ? "." : folder.c_str(), O_PATH | O_DIRECTORY));
  if (!at.valid()) return fail(Code::file_not_found, "folder '{}' cannot be opened: {}", folder, reason(errno));
  for (size_t i = 0; i < parts.size(); ++i) {
    bool last = i + 1 == parts.size();
    const std::string path = join_path(folder, {parts.begin(), parts.begin() + static_cast<ptrdiff_t>(i) + 1});
    FileDescriptor next(open_at(at.get(), parts[i].c_str(), O_NOFOLLOW | (last ? flags : O_PATH)));
    if (!next.valid() && errno == ELOOP)
      return fail(Code::path_escapes, "'{}' is a link, which data of '{}' may not pass through", path, folder);
    if (!next.valid()) return fail(Code::file_not_found, "'{}' cannot be opened: {}", path, reason(errno));
    struct stat info;
    if (::fstat(next.get(), &info) != 0) return fail(Code::file_not_found, "'{}': {}", path, reason(errno));
    if (S_ISLNK(info.st_mode))  // O_PATH opens the link itself
      return fail(Code::path_escapes, "'{}' is a link, which data of '{}' may not pass through", path, folder);
    if (!last && !S_ISDIR(info.st_mode)) return fail(Code::file_not_found, "'{}' is not a folder", path);
    at = std::move(next);
  }
  return at;
}

size_t page_size() {
  static const size_t size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  TESSERA_ASSIGN(FileDescriptor file, open_for_reading(path));
  return map(std::move(file), path);
}

Result<std::shared_ptr<const MappedFile>> MappedFile::open_inside(const std::string& folder,
                                                                  std::string_view relative) {
  TESSERA_ASSIGN(std::vector<std::string> parts, parts_inside(folder, relative));
  TESSERA_ASSIGN(FileDescriptor file, open_parts(folder, parts, O_RDONLY | O_NONBLOCK));
  return map(std::move(file), join_path(folder, parts));
}

Result<std::shared_ptr<const MappedFile>> MappedFile::map(FileDescriptor file, std::string path) {
  TESSERA_ASSIGN(size_t size, regular_size(file, path));
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (data == MAP_FAILED) {
      Code code = errno == ENOMEM ? Code::out_of_memory : Code::file_not_found;
      return fail(code, "'{}' of {} bytes cannot be mapped: {}", path, size, reason(errno));
    }
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(std::move(path), static_cast<const std::byte*>(data), size));
}

MappedFile::MappedFile(std::string path, const std::byte* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {
  if (size_ == 0) return;
  const std::lock_guard lock(mappings().mutex);
  mappings().by_address.emplace(data_, this);
}

MappedFile::~MappedFile() {
  if (size_ == 0) return;
  {
    const std::lock_guard lock(mappings().mutex);
    mappings().by_address.erase(data_);
  }
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release_at(const void* data, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  const std::lock_guard lock(mappings().mutex);  // held while the pages go, so that the mapping cannot end meanwhile
  auto at = mappings().by_address.upper_bound(first);
  if (at == mappings().by_address.begin()) return;
  const MappedFile& file = *(--at)->second;
  if (first < file.data_ + file.size_) file.release(static_cast<size_t>(first - file.data_), bytes);
}

void MappedFile::release(size_t offset, size_t length) const {
  if (offset >= size_) return;
  const size_t page = page_size();
  const size_t end = offset + std::min(length, size_ - offset);
  // The last page of the file ends where the file does: the bytes behind it belong to nobody.
  const size_t last = end == size_ ? size_ : end / page * page;
  const size_t first = (offset + page - 1) / page * page;
  if (first < last) ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

void MappedFile::prefetch(size_t offset, size_t length) const {
  if (offset >= size_ || length == 0) return;
  const size_t first = offset / page_size() * page_size();
  const size_t end = offset + std::min(length, size_ - offset);
  ::madvise(const_cast<std::byte*>(data_) + first, end - first, MADV_WILLNEED);
}

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  TESSERA_ASSIGN(FileDescriptor file, open_for_reading(path));
  TESSERA_ASSIGN(size_t size, regular_size(file, path));
  std::string text;
  // Files of /proc say that they have no bytes, and a file may grow while it is read: read to the end, whatever it
  // said.
  constexpr size_t kStep = 64 << 10;
  for (size_t used = 0;;) {
    if (size > max_bytes || used > max_bytes)
      return fail(Code::file_malformed, "'{}' has {} bytes, but at most {} are read from such a file", path,
                  std::max(size, used), max_bytes);
    if (used == text.size()) text.resize(std::max(used + kStep, size + 1));
    ssize_t got = ::read(file.get(), text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(Code::file_not_found, "'{}' cannot be read: {}", path, reason(errno));
    if (got == 0) {
      text.resize(used);
      return text;
    }
    used += static_cast<size_t>(got);
  }
}

Result<std::string> resolve_inside(const std::string& folder, std::string_view relative) {
  TESSERA_ASSIGN(std::vector<std::string> parts, parts_inside(folder, relative));
  TESSERA_TRY(open_parts(folder, parts, O_PATH));
  return join_path(folder, parts);
}

}  // namespace tessera
