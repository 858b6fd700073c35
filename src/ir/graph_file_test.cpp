#include "ir/graph_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "ir/printer.h"
#include "ir/text_test_ops.h"

namespace tessera::ir {
namespace {

namespace fs = std::filesystem;

class GraphFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("tessera_graph_file_{}", getpid());
    fs::create_directories(folder_ / "in");
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(std::string_view name) const { return (folder_ / "in" / name).string(); }
  void write(std::string_view name, std::string_view text) const { std::ofstream(path(name)) << text; }

  fs::path folder_;
};

Graph graph_of(std::string_view text) {
  Result<Graph> graph = parse_graph(text, test_ops::find);
  EXPECT_TRUE(graph) << graph.error().to_string();
  return std::move(*graph);
}

std::string numbers(int count) {
  std::string text = "0";
  for (int i = 1; i < count; ++i) text += fmt::format(", {}", i % 100);
  return text;
}

TEST_F(GraphFile, KeepsLargeConstantsInAFileBesideIt) {
  std::string text = fmt::format(
      "graph {{ %0: f32[300] = constant [{}] %1: i8[257] = constant [{}] %2: f16[1000] = constant all 2 "
      "%3: f32[2] = constant [1, 2] %4: f64[300] = constant [{}] out %0 }}",
      numbers(300), numbers(257), numbers(300));
  Graph graph = graph_of(text);
  ASSERT_TRUE(save_graph(graph, path("model.tg")));
  std::ifstream file(path("model.tg"));
  std::string saved((std::istreambuf_iterator<char>(file)), {});
  EXPECT_TRUE(test_ops::has(saved, "%0: f32[300] = constant file \"model.weights\" offset 0 length 1200\n"));
  EXPECT_TRUE(test_ops::has(saved, "%1: i8[257] = constant file \"model.weights\" offset 1216 length 257\n"));
  EXPECT_TRUE(test_ops::has(saved, "%2: f16[1000] = constant all 2\n  %3: f32[2] = constant [1, 2]\n"));
  Result<Graph> loaded = load_graph(path("model.tg"), test_ops::find);
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(print(*loaded), print(graph));
}

TEST_F(GraphFile, SmallGraphsAreOneFile) {
  ASSERT_TRUE(save_graph(graph_of("graph { in %0: f32[] out %0 }"), path("small.tg")));
  EXPECT_FALSE(fs::exists(path("small.weights")));
  EXPECT_TRUE(load_graph(path("small.tg"), test_ops::find));
}

TEST_F(GraphFile, StaysInItsFolder) {
  write("w.bin", "12345678");
  std::ofstream(folder_ / "outside.bin") << "12345678";
  fs::create_symlink(folder_ / "outside.bin", path("link.bin"));
  auto load = [&](std::string_view file, int64_t offset) {
    write("g.tg", fmt::format("graph {{ %0: u8[4] = constant file \"{}\" offset {} length 4 out %0 }}", file, offset));
    return load_graph(path("g.tg"), test_ops::find);
  };
  Result<Graph> read = load("w.bin", 3);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_TRUE(test_ops::has(print(*read), "constant [52, 53, 54, 55]"));
  auto code = [](const Result<Graph>& graph) { return graph ? Code::internal : graph.error().code; };
  EXPECT_EQ(code(load("../outside.bin", 0)), Code::path_escapes);
  EXPECT_EQ(code(load("link.bin", 0)), Code::path_escapes);
  EXPECT_EQ(code(load((folder_ / "outside.bin").string(), 0)), Code::path_escapes);
  EXPECT_EQ(code(load("missing.bin", 0)), Code::file_not_found);
  EXPECT_EQ(code(load("w.bin", 5)), Code::file_truncated);
  EXPECT_EQ(code(load("w.bin", INT64_MAX)), Code::file_truncated);
}

TEST_F(GraphFile, SaysWhichFile) {
  write("bad.tg", "graph {");
  Result<Graph> graph = load_graph(path("bad.tg"), test_ops::find);
  ASSERT_FALSE(graph);
  EXPECT_TRUE(test_ops::has(graph.error().to_string(), "while loading '" + path("bad.tg") + "'"));
  EXPECT_FALSE(load_graph(path("none.tg"), test_ops::find));
  EXPECT_FALSE(save_graph(graph_of("graph {}"), path("no/such/folder.tg")));
}

}  // namespace
}  // namespace tessera::ir
