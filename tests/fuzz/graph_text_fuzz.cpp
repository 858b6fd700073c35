// Reads bytes as the text of a graph over all operators. What reads must print, and what is printed must read again and
// print as the same text.
#include <cstdlib>
#include <string_view>

#include "ir/parser.h"
#include "ir/printer.h"
#include "ops/ops.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  ir::ParseOptions options;
  options.max_uniform_bytes = size_t{1} << 20;
  auto graph = ir::parse_graph({reinterpret_cast<const char*>(data), size}, ops::find_op, options);
  if (!graph) return 0;
  const std::string text = ir::print(*graph);
  auto again = ir::parse_graph(text, ops::find_op, options);
  if (!again || ir::print(*again) != text) std::abort();
  return 0;
}
