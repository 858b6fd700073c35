#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "base/file.h"
#include "base/result.h"

namespace tessera {
namespace {

constexpr size_t kGather = 64 << 10;  // bytes: a system call costs less than copying this much

tl::unexpected<Error> write_failure(const std::string& path, int error) {
  return fail(Code::file_write_failed, "'{}' cannot be written: {}", path, std::generic_category().message(error));
}

std::string folder_of(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// fsync, again when a signal interrupts it. File systems that cannot sync say EINVAL; that is no failure of ours.
int sync_file(int fd) {
  int result;
  do result = ::fsync(fd);
  while (result != 0 && errno == EINTR);
  return result != 0 && errno == EINVAL ? 0 : result;
}

}  // namespace

AtomicFile::AtomicFile(std::string path, std::string temporary, FileDescriptor file)
    : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  if (path.empty()) return fail(Code::file_write_failed, "an empty path cannot be written");
  if (path.find('\0') != std::string::npos)
    return fail(Code::file_write_failed, "a path holds a zero byte at {}, and no file name can", path.find('\0'));
  std::string target = path;
  struct stat info;
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists) {
    // Renaming over a device or pipe (/dev/null, /dev/stdout) would destroy it.
    if (!S_ISREG(info.st_mode))
      return fail(Code::file_write_failed, "'{}' cannot be written: it exists and is not a regular file", path);
    char* real = ::realpath(path.c_str(), nullptr);
    if (real == nullptr) return write_failure(path, errno);
    target = real;
    std::free(real);
  }
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string temporary = fmt::format("{}/.tessera-{}-{}.tmp", folder_of(target), ::getpid(), counter.fetch_add(1));
    FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file.valid() && (errno == EEXIST || errno == EINTR)) continue;
    if (!file.valid()) return write_failure(path, errno);
    AtomicFile result(std::move(target), std::move(temporary), std::move(file));
    if (exists && ::fchmod(result.file_.get(), info.st_mode & 07777) != 0) return write_failure(path, errno);
    return result;
  }
  return write_failure(path, EEXIST);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)),
      pending_(std::move(other.pending_)),
      position_(other.position_),
      failed_(other.failed_) {}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  TESSERA_CHECK(!temporary_.empty());
  if (pending_.size() + bytes.size() > kGather) TESSERA_TRY(flush());
  if (bytes.size() > kGather) {
    TESSERA_TRY(write_through(bytes));
  } else {
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  }
  position_ += bytes.size();
  return {};
}

Status AtomicFile::flush() {
  TESSERA_TRY(write_through(pending_));
  pending_.clear();
  return {};
}

Status AtomicFile::write_through(std::span<const std::byte> bytes) {
  while (failed_ == 0 && !bytes.empty()) {
    ssize_t wrote = ::write(file_.get(), bytes.data(), bytes.size());
    if (wrote >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(wrote));
    } else if (errno != EINTR) {
      failed_ = errno;
    }
  }
  if (failed_ != 0) return write_failure(path_, failed_);
  return {};
}

Result<std::string> AtomicFile::readable() {
  TESSERA_CHECK(!temporary_.empty());
  TESSERA_TRY(flush());
  return temporary_;
}

Status AtomicFile::commit(Durability durability) {
  TESSERA_CHECK(!temporary_.empty());
  TESSERA_TRY(flush());
  const bool sync = durability == Durability::disk;
  if (sync && sync_file(file_.get()) != 0) return write_failure(path_, failed_ = errno);
  // Network file systems report what failed to reach them on close, so the name is given only after it.
  if (::close(file_.release()) != 0 && errno != EINTR) return write_failure(path_, failed_ = errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return write_failure(path_, failed_ = errno);
  temporary_.clear();
  if (sync) {
    FileDescriptor folder(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid() || sync_file(folder.get()) != 0) return write_failure(path_, errno);
  }
  return {};
}

Status write_file_atomic(const std::string& path, std::span<const std::byte> bytes, Durability durability) {
  TESSERA_ASSIGN(AtomicFile file, AtomicFile::create(path));
  TESSERA_TRY(file.write(bytes));
  return file.commit(durability);
}

Status write_file_atomic(const std::string& path, std::string_view text, Durability durability) {
  return write_file_atomic(path, std::as_bytes(std::span(text)), durability);
}

}  // namespace tessera
