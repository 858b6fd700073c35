// The seeds of the text parser's fuzzer are graphs over the listed operators: they read, verify and round-trip.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "ops/ops.h"

namespace tessera {
namespace {

TEST(GraphText, SeedsRoundTrip) {
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/corpus/graph_text_fuzz")) {
    if (entry.path().extension() != ".tg") continue;
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path());
    std::string text((std::istreambuf_iterator<char>(file)), {});
    Result<ir::Graph> graph = ir::parse_graph(text, ops::find_op);
    if (entry.path().stem().string().starts_with("error")) {
      EXPECT_FALSE(graph);
      continue;
    }
    if (!graph) {
      ADD_FAILURE() << graph.error().to_string();
      continue;
    }
    Status verified = ir::verify(*graph);
    EXPECT_TRUE(verified) << verified.error().to_string();
    std::string printed = ir::print(*graph);
    Result<ir::Graph> again = ir::parse_graph(printed, ops::find_op);
    ASSERT_TRUE(again) << again.error().to_string() << printed;
    EXPECT_EQ(ir::print(*again), printed);
    ++read;
  }
  EXPECT_GE(read, 5);
}

}  // namespace
}  // namespace tessera
