// Reads the line of text in each picture.
//
// usage: ocr MODEL.onnx ALPHABET.txt [--expect FILE.tsv] PICTURE.png ...
//   --expect: lines of "file TAB text"; exit code 1 unless each is among the pictures and read so
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>

#include "reader.h"

namespace {

constexpr double kMebi = 1024.0 * 1024.0;

int failed(const tessera::Error& error) {
  fmt::print(stderr, "{}\n", error.to_string());
  return tessera::describe(error.code).exit_code;
}

// The most memory that this process has had resident, in bytes.
double peak_resident() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

struct Arguments {
  std::string model;
  std::string alphabet;
  std::string expected;
  std::vector<std::string> pictures;
};

// False when the arguments do not follow the usage above.
bool parse(int argc, char** argv, Arguments& arguments) {
  std::vector<std::string> plain;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "--expect") {
      plain.emplace_back(argv[i]);
    } else if (++i < argc) {
      arguments.expected = argv[i];
    } else {
      return false;
    }
  }
  if (plain.size() < 3) return false;
  arguments.model = plain[0];
  arguments.alphabet = plain[1];
  arguments.pictures.assign(plain.begin() + 2, plain.end());
  return true;
}

// Nodes of the graph as imported, without optimisation: known after it has read a picture.
tessera::Result<int64_t> nodes_before(const Arguments& arguments) {
  tessera::SessionOptions options;
  options.compile.optimisation = 0;
  const auto reader = ocr::Reader::load(arguments.model, arguments.alphabet, options);
  if (!reader) return tl::unexpected(reader.error());
  const auto picture = ocr::read_png(arguments.pictures.front());
  if (!picture) return tl::unexpected(picture.error());
  if (const auto text = reader->read(*picture); !text) return tl::unexpected(text.error());
  return reader->session().statistics().nodes;
}

// What the run cost. `milliseconds` is the time of all pictures.
int print_summary(const Arguments& arguments, const ocr::Reader& reader, double milliseconds) {
  const double peak = peak_resident();
  const tessera::SessionStatistics statistics = reader.session().statistics();
  const auto before = nodes_before(arguments);
  if (!before) return failed(before.error());
  fmt::print("\n{} pictures in {:.0f} ms ({}, {} threads)\n", arguments.pictures.size(), milliseconds, statistics.isa,
             statistics.threads);
  fmt::print("nodes: {} before optimisation, {} after, run by {} kernels\n", *before, statistics.nodes,
             statistics.kernels);
  fmt::print("peak memory: {:.1f} MiB resident, of which {:.1f} MiB activations\n", peak / kMebi,
             static_cast<double>(statistics.peak_activation_bytes) / kMebi);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    fmt::print(stderr, "usage: ocr MODEL.onnx ALPHABET.txt [--expect FILE.tsv] PICTURE.png ...\n");
    return tessera::describe(tessera::Code::usage).exit_code;
  }
  std::map<std::string, std::string> expected;  // text by file name
  if (!arguments.expected.empty()) {
    const auto lines = ocr::read_expected(arguments.expected);
    if (!lines) return failed(lines.error());
    for (const ocr::Expected& line : *lines) expected[line.file] = line.text;
  }
  const auto reader = ocr::Reader::load(arguments.model, arguments.alphabet);
  if (!reader) return failed(reader.error());

  double total = 0;
  int right = 0;  // of the expected texts
  for (const std::string& path : arguments.pictures) {
    const auto picture = ocr::read_png(path);
    if (!picture) return failed(picture.error());
    const auto start = std::chrono::steady_clock::now();
    const auto text = reader->read(*picture);
    const double milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (!text) return failed(text.error());
    total += milliseconds;
    const std::string file = std::filesystem::path(path).filename();
    fmt::print("{:<20} {:7.1f} ms  {}\n", file, milliseconds, *text);
    std::fflush(stdout);  // each line as it is read, in a pipe too
    const auto line = expected.find(file);
    if (line == expected.end()) continue;
    if (line->second == *text)
      ++right;
    else
      fmt::print("{:<20} expected    {}\n", "", line->second);
  }
  if (const int code = print_summary(arguments, *reader, total); code != 0) return code;
  if (!expected.empty()) fmt::print("{} of {} texts as expected\n", right, expected.size());
  return right == static_cast<int>(expected.size()) ? 0 : 1;
}
