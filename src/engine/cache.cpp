#include "engine/cache.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "base/fingerprint.h"
#include "base/result.h"
#include "engine/executable.h"
#include "engine/options.h"
#include "ir/core_ops.h"
#include "plan/artifact.h"
#include "tessera/tessera.h"

namespace tessera::engine {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWorthBytes = int64_t{1} << 20;  // of constants: packing them takes milliseconds
constexpr int64_t kWorthNodes = 2000;              // optimising them does
constexpr size_t kPieceBytes = size_t{16} << 20;   // of a model, whose pages go once they have been read
constexpr size_t kSmallFile = 4096;
constexpr auto kStale = std::chrono::hours(1);            // what a writer that was killed left behind
constexpr auto kForgotten = std::chrono::hours(24 * 90);  // models that were read long ago, 32 bytes each
constexpr std::string_view kEntry = ".tess", kStamp = ".stamp", kContents = ".model";

// The file that holds this code: another build makes other plans.
std::string build_stamp() {
  Dl_info info = {};
  std::string stamp;
  if (::dladdr(reinterpret_cast<const void*>(&default_cache_folder), &info) != 0 && info.dli_fname != nullptr)
    stamp = file_stamp(info.dli_fname);
  return stamp.empty() ? file_stamp("/proc/self/exe") : stamp;
}

// The constants that do not lie in the model's bytes: external data, and what import made.
void add_constants(const ir::Graph& graph, std::span<const std::byte> bytes, Fingerprint& print) {
  for (const Tensor& tensor : constants_of(graph)) {
    if (tensor.dtype() == DType::string) continue;  // they are copied from the model's bytes
    const auto* data = static_cast<const std::byte*>(tensor.data());
    if (data < bytes.data() || data >= bytes.data() + bytes.size()) print.add({data, tensor.bytes()});
  }
}

// Held while entries are removed.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : file_(::open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    held_ = file_.valid() && ::flock(file_.get(), LOCK_EX) == 0;
  }
  bool held() const { return held_; }

 private:
  FileDescriptor file_;  // closing it gives the lock back
  bool held_ = false;
};

void remove(const std::string& path) { ::unlink(path.c_str()); }

}  // namespace

std::string default_cache_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* text = std::getenv(name);
    return text == nullptr ? "" : text;
  };
  if (std::string folder = variable("TESSERA_CACHE_DIR"); !folder.empty()) return folder;
  if (std::string folder = variable("XDG_CACHE_HOME"); folder.starts_with('/')) return folder + "/tessera";
  if (std::string home = variable("HOME"); home.starts_with('/')) return home + "/.cache/tessera";
  return "";
}

bool CompileCache::worth_keeping(const ir::Graph& graph) {
  return constant_bytes(graph) >= kWorthBytes || count_nodes(graph) >= kWorthNodes;
}

std::string CompileCache::path(const std::string& key, std::string_view ending) const {
  return folder_ + "/" + key + std::string(ending);
}

std::string CompileCache::contents_of(const Model::Impl& model) const {
  const std::string stamp = model.path().empty() ? "" : file_stamp(model.path());
  std::string known;
  if (!stamp.empty()) {
    Fingerprint print;
    print.add(stamp);
    known = path(print.text(), kContents);
    if (const Result<std::string> contents = read_file(known, kSmallFile)) return *contents;
  }
  Fingerprint print;
  for (std::span<const std::byte> rest = model.bytes(); !rest.empty();) {
    const std::span<const std::byte> piece = rest.first(std::min(kPieceBytes, rest.size()));
    print.add(piece);
    MappedFile::release_at(piece.data(), piece.size());
    rest = rest.subspan(piece.size());
  }
  // A file that was written to in the meantime has another stamp by now.
  if (!known.empty() && file_stamp(model.path()) == stamp) (void)write_file_atomic(known, print.text());
  return print.text();
}

std::string CompileCache::key(const Model::Impl& model, const ir::Graph& graph, const CompileOptions& options,
                              std::string_view isa) const {
  std::error_code ignored;
  fs::create_directories(folder_, ignored);  // insert() tells when it is not there
  Fingerprint print;
  print.add(version());
  print.add(build_stamp());
  print.add(isa);
  print.add(contents_of(model));
  for (const DimRange& dim : model.dims()) print.add(text_of(dim));
  print.add(text_of(options));
  add_constants(graph, model.bytes(), print);
  return print.text();
}

std::optional<CompileCache::Entry> CompileCache::find(const std::string& key) const {
  const std::string entry = path(key, kEntry), stamp = path(key, kStamp);
  const Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(entry);
  if (!file) return std::nullopt;
  const auto bytes = (*file)->bytes();
  const Result<std::string> known = read_file(stamp, kSmallFile);
  const bool untouched = known && *known == file_stamp(entry);
  Result<plan::Artifact> artifact = plan::read_artifact(bytes, *file);
  if (artifact && !untouched)
    if (Status whole = plan::verify_constants(bytes); !whole)
      artifact = tl::unexpected<Error>(std::move(whole).error());
  int64_t nodes = 0;
  if (artifact) {
    const std::string& text = artifact->notes["nodes"];
    std::from_chars(text.data(), text.data() + text.size(), nodes);
  }
  if (!artifact || artifact->notes["key"] != key) {
    remove(entry);
    remove(stamp);
    return std::nullopt;
  }
  // Writing the stamp again says that the entry was used now.
  (void)write_file_atomic(stamp, file_stamp(entry));
  return Entry{std::move(artifact->plan), nodes};
}

Status CompileCache::insert(const std::string& key, const plan::Plan& plan, int64_t nodes) const {
  int64_t bytes = 0;
  for (const Tensor& constant : plan.constants) bytes += static_cast<int64_t>(constant.bytes());
  if (bytes > most_bytes_) return {};
  const std::string entry = path(key, kEntry);
  TESSERA_TRY(plan::write_artifact(entry, plan, {{"key", key}, {"nodes", std::to_string(nodes)}}));
  TESSERA_TRY(write_file_atomic(path(key, kStamp), file_stamp(entry)));
  make_room();
  return {};
}

void CompileCache::make_room() const {
  const FolderLock lock(folder_);
  if (!lock.held()) return;
  struct Kept {
    fs::file_time_type used;
    std::string key;
    int64_t bytes;
  };
  std::vector<Kept> entries;
  int64_t total = 0;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (const fs::directory_entry& file : fs::directory_iterator(folder_, error)) {
    const fs::path& name = file.path();
    std::error_code gone;
    const auto written = file.last_write_time(gone);
    if (gone) continue;
    if (name.extension() == kEntry) {
      const auto bytes = static_cast<int64_t>(file.file_size(gone));
      if (gone) continue;
      const auto used = fs::last_write_time(fs::path(name).replace_extension(kStamp), gone);
      entries.push_back({gone ? written : used, name.stem().string(), bytes});
      total += bytes;
    } else if (name.filename().string().starts_with(".tessera-") && now - written > kStale) {
      remove(name.string());
    } else if (name.extension() == kContents && now - written > kForgotten) {
      remove(name.string());
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Kept& a, const Kept& b) { return a.used < b.used; });
  for (size_t i = 0; i < entries.size() && total > most_bytes_; ++i) {
    remove(path(entries[i].key, kEntry));
    remove(path(entries[i].key, kStamp));
    total -= entries[i].bytes;
  }
}

}  // namespace tessera::engine
