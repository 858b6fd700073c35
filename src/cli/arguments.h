// The command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/session.h"

namespace tessera::cli {

// What the commands on language models take.
struct LanguageArguments {
  std::vector<std::string> prompts;
  std::vector<std::string> ids;  // "1,2,3", a sequence each
  std::string types;             // "0,0,1"
  bool ignore_eos = false;
  int64_t max_tokens = 128;
  double temperature = 0, top_p = 1, min_p = 0;
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int64_t top_k = 0, logprobs = 0;
  std::vector<std::string> logit_bias;  // "ID=VALUE"
  std::vector<std::string> stops;
  int64_t context = 0;  // 0: what the model was made for
  int64_t chunk = 512;
  std::string cache = "f32";
  std::string activations = "keep";
  std::string weights = "keep";
  bool deterministic = false;
  int64_t bench_prompt = 512, bench_gen = 64, bench_sequences = 1;
  std::string pooling;  // "": as the model's files say
  bool normalise = false;
  bool compare = false;
  int64_t stride = 0;
  std::string file;
  bool chat = false;
  std::string system;         // generate --chat
  std::string chat_template;  // a file
  bool decode = false;        // tokenize
  bool offsets = false;
  bool no_special = false;
};

// What all commands together take; each reads its own part.
struct Arguments {
  std::string command;  // "run"
  std::string subject;  // the model; conformance: the folder; explain: the code
  std::vector<std::string> inputs;
  std::vector<DimRange> dims;
  SessionOptions session;
  std::string output;  // compile: the artifact; run: the folder; quantize: the file
  std::string skips;
  std::string filter = "*";
  std::string type = "Q4_K_M";  // quantize: the types of the weights
  int runs = 20;
  double tolerance = 0;  // 0: what the types allow
  uint64_t seed = 1;
  bool json = false;
  bool text = false;
  LanguageArguments language;
  bool serve = false;
  bool plan = false;       // inspect
  bool report = false;     // compile
  std::string dump_after;  // compile
};

// What a command line that asks for nothing to be done ends with: help, or the version.
struct Reply {
  std::string text;
};

// E0801 with what is wrong.
Result<std::variant<Arguments, Reply>> parse_arguments(int argc, const char* const* argv);

}  // namespace tessera::cli
