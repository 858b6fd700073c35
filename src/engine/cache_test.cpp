// Compiled plans from one session to the next: damaged ones, several writers, a bounded folder.
#include "engine/cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/fingerprint.h"
#include "base/test_folder.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ops/math.h"
#include "ops/ops.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// y = x w, with 2 MiB of weights.
std::string layer_text(float first) {
  ir::Graph graph(std::make_shared<ir::Context>());
  ir::Builder b(graph);
  const ir::X x = b.input(b.context().tensor(DType::f32, {graph.dims().symbol("n"), 512}), "x");
  Tensor w = *Tensor::make(DType::f32, {1024, 512});
  for (int64_t i = 0; i < w.count(); ++i) w.as<float>()[i] = static_cast<float>(i % 7) * 0.25f;
  w.as<float>()[0] = first;
  graph.outputs = {b.add1(ops::dot_op, {x, b.constant(std::move(w))}).id};
  graph.output_names = {graph.context().name("y")};
  EXPECT_TRUE(graph.compact());
  return ir::print(graph, ir::PrintOptions());
}

class Cache : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    text_ = layer_text(1);
    other_text_ = layer_text(2);
  }

  SessionOptions options() const { return {.cache_folder = folder_.path() + "/cache"}; }

  // Runs one request in a new session.
  struct Ran {
    bool from_cache = false;
    float first = 0;
  };
  static Ran run(const std::string& text, const SessionOptions& options, std::vector<DimRange> dims = {}) {
    const auto model = Model::from_memory(std::as_bytes(std::span(text)), "", {std::move(dims)});
    EXPECT_TRUE(model);
    const auto session = Session::create(*model, options);
    EXPECT_TRUE(session) << session.error().to_string();
    Tensor x = *Tensor::make(DType::f32, {2, 512});
    std::fill_n(x.as<float>(), x.count(), 0.0f);
    x.as<float>()[0] = 1;
    const NamedValue inputs[] = {{"x", x}};
    const auto outputs = session->run(inputs);
    EXPECT_TRUE(outputs) << outputs.error().to_string();
    return {session->statistics().from_cache, (*outputs)[0].value.tensor()->as<float>()[0]};
  }

  std::vector<fs::path> entries() const {
    std::vector<fs::path> found;
    for (const auto& file : fs::directory_iterator(options().cache_folder))
      if (file.path().extension() == ".tess") found.push_back(file.path());
    return found;
  }

  TestFolder folder_;
  static std::string text_, other_text_;
};
std::string Cache::text_, Cache::other_text_;

TEST_F(Cache, TheSecondSessionFindsWhatTheFirstMade) {
  EXPECT_FALSE(run(text_, options()).from_cache);
  const Ran second = run(text_, options());
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.first, 1);
  EXPECT_EQ(entries().size(), 1u);
  EXPECT_FALSE(run(text_, SessionOptions{}).from_cache);
}

TEST_F(Cache, ContentsOptionsAndSizesAreTheKey) {
  EXPECT_FALSE(run(text_, options()).from_cache);
  EXPECT_EQ(run(other_text_, options()).first, 2);
  SessionOptions plain = options();
  plain.compile.optimisation = 0;
  EXPECT_FALSE(run(text_, plain).from_cache);
  EXPECT_FALSE(run(text_, options(), {{"n", 1, 4}}).from_cache);
  EXPECT_FALSE(run(text_, options(), {{"n", 1, 5}}).from_cache);
  EXPECT_EQ(entries().size(), 5u);
  EXPECT_TRUE(run(text_, plain).from_cache);
  EXPECT_TRUE(run(text_, options(), {{"n", 1, 5}}).from_cache);
}

TEST_F(Cache, DamagedEntriesAreMadeAgain) {
  run(text_, options());
  const fs::path entry = entries().at(0);
  const auto size = static_cast<int64_t>(fs::file_size(entry));
  // Header, plan, the first and the last weights, and files that were cut.
  for (const int64_t position : {int64_t{3}, int64_t{60}, int64_t{200}, int64_t{5000}, size - 1, -size / 2, -size}) {
    if (position >= 0) {
      std::fstream file(entry, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(position);
      const char byte = static_cast<char>(file.get() ^ 0x41);
      file.seekp(position);
      file.put(byte);
    } else {
      fs::resize_file(entry, static_cast<uintmax_t>(size + position));
    }
    const Ran again = run(text_, options());
    EXPECT_FALSE(again.from_cache) << position;
    EXPECT_EQ(again.first, 1);
    EXPECT_TRUE(run(text_, options()).from_cache) << position;
  }
  // Touched, but whole: it is read, checked, and used.
  fs::last_write_time(entry, fs::file_time_type::clock::now());
  EXPECT_TRUE(run(text_, options()).from_cache);
}

TEST_F(Cache, EntriesOfAnotherKeyAreNotRun) {
  run(text_, options());
  const fs::path entry = entries().at(0);
  run(other_text_, options());
  for (const fs::path& other : entries())
    if (other != entry) fs::copy_file(entry, other, fs::copy_options::overwrite_existing);
  EXPECT_EQ(run(other_text_, options()).first, 2);
}

TEST_F(Cache, TheLeastRecentlyUsedGo) {
  SessionOptions bounded = options();
  bounded.cache_bytes = 5 << 20;  // two entries
  const auto at = [&](int64_t hi) { return run(text_, bounded, {{"n", 1, hi}}).from_cache; };
  EXPECT_FALSE(at(10));
  EXPECT_FALSE(at(20));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // file times are that coarse
  EXPECT_TRUE(at(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(at(30));
  EXPECT_EQ(entries().size(), 2u);
  EXPECT_TRUE(at(10));
  EXPECT_TRUE(at(30));
  EXPECT_FALSE(at(20));
  bounded.cache_bytes = 1 << 20;  // nothing fits
  EXPECT_FALSE(at(40));
  EXPECT_FALSE(at(40));
}

TEST_F(Cache, SeveralProcessesAtOnce) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool right = true;
      SessionOptions bounded = options();
      bounded.cache_bytes = 5 << 20;
      for (int k = 0; k < 6; ++k)
        right &= run(k % 2 == 0 ? text_ : other_text_, bounded, {{"n", 1, 8 + k % 3}}).first == 1 + k % 2;
      ::_exit(right ? 0 : 1);
    }
    ASSERT_GT(child, 0);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  for (const auto& file : fs::directory_iterator(options().cache_folder))
    EXPECT_NE(file.path().extension(), ".tmp") << file.path();
  EXPECT_EQ(run(text_, options()).first, 1);
}

TEST_F(Cache, AFolderThatCannotBeWrittenToIsNoError) {
  SessionOptions nowhere;
  nowhere.cache_folder = "/proc/nowhere";
  EXPECT_EQ(run(text_, nowhere).first, 1);
}

TEST(Fingerprint, TellsContentsApart) {
  const auto of = [](std::initializer_list<std::string_view> parts) {
    Fingerprint print;
    for (std::string_view part : parts) print.add(part);
    return print.text();
  };
  EXPECT_EQ(of({"ab", "c"}), of({"ab", "c"}));
  EXPECT_NE(of({"ab", "c"}), of({"a", "bc"}));
  EXPECT_NE(of({""}), of({"", ""}));
  EXPECT_NE(of({std::string_view("a\0", 2)}), of({"a"}));
  EXPECT_EQ(of({"x"}).size(), 32u);
  const std::string block(4096, 'x');
  std::string changed = block;
  for (size_t i = 0; i < block.size(); i += 97) {
    changed[i] = 'y';
    EXPECT_NE(of({block}), of({changed}));
    changed[i] = 'x';
  }
}

}  // namespace
}  // namespace tessera
