#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/memory.h"
#include "base/test_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

TEST(MappedFile, MapsTheBytes) {
  TestFolder folder;
  auto file = MappedFile::open(folder.put("a", "hello"));
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->text(), "hello");
  EXPECT_EQ((*file)->size(), 5u);
  EXPECT_EQ((*file)->bytes().size(), 5u);
  EXPECT_EQ((*file)->path(), folder / "a");
}

TEST(MappedFile, EmptyFile) {
  TestFolder folder;
  auto file = MappedFile::open(folder.put("empty", ""));
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->size(), 0u);
  (*file)->release(0, 10);
  (*file)->prefetch(0, 10);
}

TEST(MappedFile, OutlivesTheName) {
  TestFolder folder;
  auto file = MappedFile::open(folder.put("a", "kept"));
  ASSERT_TRUE(file);
  fs::remove(folder / "a");
  EXPECT_EQ((*file)->text(), "kept");
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  TestFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder.path(), folder / "pipe", folder / "none", std::string("/dev/null"),
                                  std::string(), std::string("a\0b", 3)}) {
    auto file = MappedFile::open(path);  // must not wait for a writer of the pipe
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().code, Code::file_not_found);
    EXPECT_FALSE(read_file(path, 10)) << path;
  }
  EXPECT_NE(MappedFile::open(folder.path()).error().message.find("a folder"), std::string::npos);
  EXPECT_NE(MappedFile::open(folder / "pipe").error().message.find("a pipe"), std::string::npos);
}

TEST(MappedFile, ReleaseGivesPagesBackAndKeepsTheBytes) {
  TestFolder folder;
  const size_t size = (32 << 20) + 123;
  auto file = MappedFile::open(folder.put("big", std::string(size, 'x')));
  ASSERT_TRUE(file);
  auto sum = [&] {
    size_t total = 0;
    for (std::byte b : (*file)->bytes()) total += static_cast<size_t>(b);
    return total;
  };
  (*file)->prefetch(1000, size);
  ASSERT_EQ(sum(), size * 'x');
  const uint64_t before = resident_set().now;
  (*file)->release(1, size);  // all but the first page, to which byte 0 belongs
  const uint64_t after = resident_set().now;
  EXPECT_GE(before, after + (30 << 20));
  (*file)->release(size, 1);
  (*file)->release(size - 1, SIZE_MAX);
  (*file)->release(100, 1);
  EXPECT_EQ(sum(), size * 'x');
  // By address: of a mapped file, of other memory, and of a file that is mapped no more.
  const std::byte* data = (*file)->data();
  MappedFile::release_at(data + 1, size - 1);
  EXPECT_GE(before, resident_set().now + (30 << 20));
  EXPECT_EQ(sum(), size * 'x');
  std::vector<char> own(64 << 10, 'y');
  MappedFile::release_at(own.data(), own.size());
  EXPECT_EQ(own, std::vector<char>(64 << 10, 'y'));
  file = MappedFile::open(folder.put("other", "x"));
  MappedFile::release_at(data + 1, size - 1);
}

TEST(ReadFile, Bounds) {
  TestFolder folder;
  const std::string path = folder.put("a", "12345");
  EXPECT_EQ(read_file(path, 5).value(), "12345");
  auto longer = read_file(path, 4);
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, Code::file_malformed);
  EXPECT_EQ(read_file(folder.put("empty", ""), 0).value(), "");
  const std::string big(200'000, 'y');
  EXPECT_EQ(read_file(folder.put("big", big), 200'000).value(), big);
  EXPECT_FALSE(read_file(folder / "big", 199'999));
}

TEST(ReadFile, FilesWithoutAStatedSize) {
  EXPECT_GT(read_file("/proc/self/status", 1 << 20).value().size(), 100u);
  EXPECT_FALSE(read_file("/proc/self/status", 10));
}

TEST(ResolveInside, AcceptsWhatStaysInside) {
  TestFolder folder;
  folder.put("sub/data.bin", "x");
  for (const char* path : {"sub/data.bin", "./sub/./data.bin", "sub/../sub/data.bin", "sub//data.bin"}) {
    auto resolved = resolve_inside(folder.path(), path);
    ASSERT_TRUE(resolved) << path;
    EXPECT_EQ(*resolved, folder / "sub/data.bin");
    auto file = MappedFile::open_inside(folder.path(), path);
    ASSERT_TRUE(file) << path;
    EXPECT_EQ((*file)->text(), "x");
  }
  EXPECT_EQ(resolve_inside(folder.path() + "/", "sub/data.bin").value(), folder / "sub/data.bin");
}

TEST(ResolveInside, TheFolderItselfMayBeALink) {
  TestFolder folder;
  folder.put("real/data.bin", "x");
  fs::create_directory_symlink(folder / "real", folder / "link");
  EXPECT_TRUE(MappedFile::open_inside(folder / "link", "data.bin"));
}

TEST(ResolveInside, RefusesWhatLeadsOut) {
  TestFolder folder;
  folder.put("secret", "s");
  folder.put("root/data.bin", "x");
  fs::create_symlink("../secret", folder / "root/link");
  fs::create_directory_symlink("..", folder / "root/up");
  fs::create_symlink("data.bin", folder / "root/inner");
  fs::create_symlink("nowhere", folder / "root/dangling");
  const std::string root = folder / "root";
  for (const std::string& path :
       {std::string("../secret"), std::string("a/../../secret"), std::string(".."), folder / "secret",
        std::string("/etc/passwd"), std::string(), std::string("."), std::string("a/.."), std::string("link"),
        std::string("up/secret"), std::string("up/root/data.bin"), std::string("inner"), std::string("dangling"),
        std::string("data.bin\0/../..", 14)}) {
    auto resolved = resolve_inside(root, path);
    ASSERT_FALSE(resolved) << path;
    EXPECT_EQ(resolved.error().code, Code::path_escapes) << path << ": " << resolved.error().to_string();
    auto file = MappedFile::open_inside(root, path);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().code, Code::path_escapes) << path << ": " << file.error().to_string();
  }
}

TEST(ResolveInside, MissingParts) {
  TestFolder folder;
  folder.put("data.bin", "x");
  for (const char* path : {"none", "none/data.bin", "data.bin/more"}) {
    auto resolved = resolve_inside(folder.path(), path);
    ASSERT_FALSE(resolved) << path;
    EXPECT_EQ(resolved.error().code, Code::file_not_found) << path;
  }
  EXPECT_EQ(resolve_inside(folder / "none", "x").error().code, Code::file_not_found);
  EXPECT_EQ(resolve_inside(folder.path(), std::string(5000, 'n')).error().code, Code::file_not_found);
}

TEST(AtomicFile, AppearsOnlyOnCommit) {
  TestFolder folder;
  {
    auto file = AtomicFile::create(folder / "out");
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write("hello, "));
    EXPECT_FALSE(fs::exists(folder / "out"));
    AtomicFile moved = std::move(*file);
    ASSERT_TRUE(moved.write("world"));
    EXPECT_EQ(moved.position(), 12u);
    ASSERT_TRUE(moved.commit(Durability::disk));
  }
  EXPECT_EQ(read_file(folder / "out", 100).value(), "hello, world");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, LeavesNothingWhenAbandoned) {
  TestFolder folder;
  folder.put("out", "old");
  {
    auto file = AtomicFile::create(folder / "out");
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write(std::string(1 << 20, 'z')));
    EXPECT_EQ(folder.count(), 2u);
  }
  EXPECT_EQ(folder.count(), 1u);
  EXPECT_EQ(read_file(folder / "out", 100).value(), "old");
}

TEST(AtomicFile, GathersSmallWritesInOrder) {
  TestFolder folder;
  auto file = AtomicFile::create(folder / "out");
  ASSERT_TRUE(file);
  std::string all;
  for (int i = 0; i < 30'000; ++i) {
    std::string piece = std::to_string(i) + (i % 7000 == 0 ? std::string(100'000, '#') : ",");
    ASSERT_TRUE(file->write(piece));
    all += piece;
  }
  EXPECT_EQ(file->position(), all.size());
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(read_file(folder / "out", 10 << 20).value(), all);
}

TEST(AtomicFile, KeepsPermissionsAndWritesThroughLinks) {
  TestFolder folder;
  folder.put("real/out", "old");
  fs::permissions(folder / "real/out", fs::perms::owner_read | fs::perms::owner_write | fs::perms::owner_exec);
  fs::create_symlink("real/out", folder / "link");
  ASSERT_TRUE(write_file_atomic(folder / "link", "new"));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "real/out", 100).value(), "new");
  EXPECT_EQ(fs::status(folder / "real/out").permissions(), fs::perms::owner_all);
}

TEST(AtomicFile, NewFilesFollowTheUmask) {
  TestFolder folder;
  ASSERT_TRUE(write_file_atomic(folder / "out", "x"));
  const mode_t mask = ::umask(0);
  ::umask(mask);
  struct stat info;
  ASSERT_EQ(::stat((folder / "out").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666 & ~mask);
}

TEST(AtomicFile, FailuresAreCoded) {
  TestFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder / "none/out", folder.path(), folder / "pipe", std::string("/dev/null"),
                                  std::string(), std::string("/proc/out"), std::string("a\0b", 3)}) {
    auto written = write_file_atomic(path, "x");
    ASSERT_FALSE(written) << path;
    EXPECT_EQ(written.error().code, Code::file_write_failed) << path;
  }
  EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, AFullDiskLeavesNothing) {
  TestFolder folder;
  // A limit on file sizes stands in for a full disk; the signal that comes with it is ignored.
  auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  rlimit limit = {100'000, old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  Status first, again, commit;
  {
    auto file = AtomicFile::create(folder / "out");
    if (file) {
      first = file->write(std::string(300'000, 'x'));
      again = file->write("more");
      commit = file->commit();
    }
  }
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code, Code::file_write_failed);
  EXPECT_FALSE(commit);
  EXPECT_EQ(folder.count(), 0u);
}

}  // namespace
}  // namespace tessera
