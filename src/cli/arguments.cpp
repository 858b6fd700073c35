#include "cli/arguments.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>

#include "base/file.h"
#include "base/result.h"
#include "base/strings.h"
#include "engine/cache.h"
#include "engine/options.h"
#include "engine/recipe.h"
#include "tessera/tessera.h"

namespace tessera::cli {
namespace {

struct Draft {
  Arguments arguments;
  std::vector<std::string> dims;
  std::string rules;    // a file
  std::string options;  // a file, which has been read by then
  std::string cache_folder;
  bool no_cache = false;
};

using AddOptions = void (*)(CLI::App&, Draft&);

struct CommandSpec {
  const char* name;
  const char* about;
  const char* example;
  AddOptions add_options;
};

void add_model(CLI::App& app, Draft& draft) {
  app.add_option("MODEL", draft.arguments.subject, "an ONNX model, a graph (.tg) or an artifact (.tess)")->required();
  app.add_option("--dim", draft.dims,
                 "a named size of the inputs: NAME=N, NAME=LO..HI, or NAME=bucket:N,N for these sizes only")
      ->type_name("NAME=N")
      ->allow_extra_args(false);
}

void add_compiling(CLI::App& app, Draft& draft) {
  CompileOptions& options = draft.arguments.session.compile;
  app.add_option("-O", options.optimisation,
                 "optimisation level: 0 none, 1 clean-up, 2 fusion (default), 3 slow searches")
      ->check(CLI::Range(0, 3))
      ->type_name("0..3");
  app.add_option("--precision", options.precision,
                 "of layers: keep (default), bf16, f16, int8-dynamic, strict, or a JSON file of rules by kind and name")
      ->type_name("WORD|FILE");
  app.add_flag("--strict", options.strict, "only rewrites that keep every bit");
  app.add_flag("--approximate", options.approximate, "also rules whose two sides are only nearly equal");
  app.add_option("--rules", draft.rules, "a file of rewrite rules of your own: docs/rules.md")->type_name("FILE");
  app.add_option("--disable", options.disable, "a pass or a rule to leave out; may be given more than once")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_option("--passes", options.passes, "exactly these passes, in this order, whatever the level says")
      ->type_name("NAME,NAME")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--fold-limit", options.fold_elements,
                 "compute nodes of at most N elements beforehand where their operands are constant (default 1048576)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  app.add_flag("!--no-memory-reuse", options.reuse_memory, "give every intermediate memory of its own");
  app.add_option("--options", draft.options, "a JSON file of these options by name; flags go over it")
      ->type_name("FILE");
  app.add_option("--stop-after", options.stop_after, "stop after N rewrites of the graph")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
}

void add_running(CLI::App& app, Draft& draft) {
  add_compiling(app, draft);
  app.add_option("--threads", draft.arguments.session.threads,
                 "threads to run on (default: the cores that the container gives)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
}

// Where plans are kept from one process to the next, unless the user says no.
void add_compile_cache(CLI::App& app, Draft& draft) {
  app.add_flag("--no-cache", draft.no_cache, "neither read nor write the cache of compiled models");
  app.add_option("--cache-dir", draft.cache_folder,
                 "folder of compiled models (default: TESSERA_CACHE_DIR, else ~/.cache/tessera)")
      ->type_name("FOLDER");
  app.add_option("--cache-bytes", draft.arguments.session.cache_bytes,
                 "the most that it holds; the least recently used go (default TESSERA_CACHE_BYTES, else 4 GiB)")
      ->envname("TESSERA_CACHE_BYTES")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
}

void add_reference(CLI::App& app, Draft& draft) {
  app.add_flag("--reference", draft.arguments.session.reference, "run on the reference interpreter: exact and slow");
}

void add_inputs(CLI::App& app, Draft& draft) {
  app.add_option("-i,--input", draft.arguments.inputs,
                 "an input: NAME=FILE.npy, NAME=FILE.pb, NAME=random or NAME=random:2,3 (its shape)")
      ->type_name("NAME=SOURCE")
      ->allow_extra_args(false);
  app.add_option("--seed", draft.arguments.seed, "of random inputs (default 1)")->type_name("N");
}

void add_json(CLI::App& app, Draft& draft) {
  app.add_flag("--json", draft.arguments.json, "end with one JSON object on one line");
}

void add_language_model(CLI::App& app, Draft& draft) {
  LanguageArguments& language = draft.arguments.language;
  app.add_option("MODEL", draft.arguments.subject, "a Hugging Face folder, or a GGUF file")->required();
  app.add_option("--ids,--prompt-ids", language.ids, "token ids instead of text; again for another sequence")
      ->type_name("A,B,C")
      ->allow_extra_args(false);
  add_running(app, draft);
  add_json(app, draft);
}

void add_arithmetic(CLI::App& app, Draft& draft) {
  app.add_option("--weights", draft.arguments.language.weights,
                 fmt::format("types to round the weights to as they are loaded: keep (default), {}",
                             joined(engine::recipes(), " ")))
      ->type_name("TYPE");
  app.add_flag("--deterministic", draft.arguments.language.deterministic,
               "the same bits whoever shares a step: alone or with others, read whole or in parts");
  app.add_option("--activations", draft.arguments.language.activations,
                 "keep (default): rounded to bf16 for bf16 weights and to int8 for quantized ones; f32: as they are")
      ->check(CLI::IsMember({"keep", "f32"}))
      ->type_name("TYPE");
}

void add_cache(CLI::App& app, Draft& draft) {
  LanguageArguments& language = draft.arguments.language;
  app.add_option("--ctx", language.context, "tokens of a sequence at most (default: what is needed)")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  app.add_option("--chunk", language.chunk, "tokens of a prompt that are read at once (default 512)")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  app.add_option("--cache,--kv", language.cache, "type of the cached keys and values (default f32)")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}))
      ->type_name("TYPE");
  add_arithmetic(app, draft);
}

void add_sampling(CLI::App& app, Draft& draft) {
  LanguageArguments& l = draft.arguments.language;
  app.add_option("--max-tokens", l.max_tokens, "tokens of an answer at most (default 128)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  app.add_flag("--ignore-eos", l.ignore_eos, "go on after a token that ends a text");
  app.add_option("--temperature", l.temperature, "0 (default): always the most likely token")->type_name("X");
  app.add_option("--top-k", l.top_k, "only the N most likely tokens (default 0: all)")->type_name("N");
  app.add_option("--top-p", l.top_p, "only the most likely tokens that together have this probability")->type_name("X");
  app.add_option("--min-p", l.min_p, "only tokens with this part of the largest probability")->type_name("X");
  app.add_option("--repetition-penalty", l.repetition_penalty, "divides the logits of tokens seen")->type_name("X");
  app.add_option("--presence-penalty", l.presence_penalty, "taken off logits of tokens answered")->type_name("X");
  app.add_option("--frequency-penalty", l.frequency_penalty, "taken off logits once a use")->type_name("X");
  app.add_option("--logit-bias", l.logit_bias, "added to a token's logit; may be repeated")
      ->type_name("ID=X")
      ->allow_extra_args(false);
  app.add_option("--stop", l.stops, "text that ends the answer; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option("--logprobs", l.logprobs, "also tell the N most likely tokens of each step")->type_name("N");
  app.add_option("--seed", draft.arguments.seed, "of the draws (default 1)")->type_name("N");
}

const CommandSpec kCommands[] = {
    {"generate", "Continue a text with a language model", "tessera generate model.gguf --prompt 'Once upon a time'",
     [](CLI::App& app, Draft& draft) {
       add_language_model(app, draft);
       app.add_option("--prompt", draft.arguments.language.prompts, "the text to continue; again for another sequence")
           ->type_name("TEXT")
           ->allow_extra_args(false);
       app.add_flag("--chat", draft.arguments.language.chat,
                    "a conversation: each line of the input is said to the model, under its chat template");
       app.add_option("--system", draft.arguments.language.system, "of --chat: what the model is told first")
           ->type_name("TEXT");
       app.add_option("--chat-template", draft.arguments.language.chat_template,
                      "of --chat: a file with the template (default: the model's own)")
           ->type_name("FILE");
       add_sampling(app, draft);
       add_cache(app, draft);
     }},
    {"tokenize", "Turn text into token ids, or back", "tessera tokenize model-folder 'Once upon a time' --offsets",
     [](CLI::App& app, Draft& draft) {
       LanguageArguments& language = draft.arguments.language;
       app.add_option("MODEL", draft.arguments.subject,
                      "a model's folder, a GGUF file, a tokenizer.json, a SentencePiece model or a vocab.txt")
           ->required();
       app.add_option("TEXT", language.prompts, "the text (default: each line of the input is one)")->expected(0, 1);
       app.add_option("--file", language.file, "a file whose whole content is the text")->type_name("FILE");
       app.add_flag("--decode", language.decode, "TEXT is ids, as 1,2,3: tell the text that they stand for");
       app.add_flag("--offsets", language.offsets, "also the bytes of the text that each token stands for");
       app.add_flag("--no-special", language.no_special,
                    "without the tokens that the model puts around a text; decoding leaves special tokens out");
       add_json(app, draft);
     }},
    {"logits", "Write a language model's logits at all positions of given tokens",
     "tessera logits model.gguf --ids 1,403,407 -o logits.npy",
     [](CLI::App& app, Draft& draft) {
       add_language_model(app, draft);
       app.add_option("-o,--output", draft.arguments.output, "the .npy file to write")->required()->type_name("FILE");
       add_cache(app, draft);
     }},
    {"perplexity", "Say how well a language model foresees a text", "tessera perplexity model.gguf text.txt --ctx 512",
     [](CLI::App& app, Draft& draft) {
       LanguageArguments& language = draft.arguments.language;
       app.add_option("MODEL", draft.arguments.subject, "a Hugging Face folder, or a GGUF file")->required();
       app.add_option("FILE", language.file, "the text")->required();
       app.add_option("--stride", language.stride,
                      "tokens scored in a window; those before only lead to them "
                      "(default: half of --ctx)")
           ->check(CLI::PositiveNumber)
           ->type_name("N");
       add_cache(app, draft);
       add_running(app, draft);
       add_json(app, draft);
     }},
    {"embed", "Turn texts into vectors", "tessera embed model-folder --text 'A dog.' --text 'A cat.' --compare",
     [](CLI::App& app, Draft& draft) {
       add_language_model(app, draft);
       LanguageArguments& language = draft.arguments.language;
       app.add_option("--text", language.prompts, "a text; may be repeated")
           ->type_name("TEXT")
           ->allow_extra_args(false);
       app.add_option("--file", language.file, "a file with a text a line (- is the input)")->type_name("FILE");
       app.add_flag("--compare", language.compare, "a table of the cosines between all vectors instead");
       app.add_option("--types", language.types, "token types of a single sequence")->type_name("A,B,C");
       app.add_option("--pooling", language.pooling,
                      "none (a vector a token), mean, cls, last, or pooler: the model's own layer (default: what the "
                      "model's files say)")
           ->check(CLI::IsMember({"none", "mean", "cls", "last", "pooler"}))
           ->type_name("KIND");
       add_arithmetic(app, draft);
       app.add_flag("--normalise,--normalize", language.normalise, "scale vectors to length 1");
       app.add_option("-o,--output", draft.arguments.output, "the .npy file to write")->type_name("FILE");
     }},
    {"run", "Run a model on given inputs", "tessera run model.onnx --input x=x.npy --output-dir out",
     [](CLI::App& app, Draft& draft) {
       add_model(app, draft);
       add_inputs(app, draft);
       app.add_option("--output-dir", draft.arguments.output, "folder that the outputs are written to, as NAME.npy")
           ->type_name("FOLDER");
       add_running(app, draft);
       add_compile_cache(app, draft);
       add_reference(app, draft);
       add_json(app, draft);
     }},
    {"inspect", "Say what a model is made of, what it costs and what is not supported",
     "tessera inspect model.onnx --dim batch=1 --dim seq=128",
     [](CLI::App& app, Draft& draft) {
       add_model(app, draft);
       app.add_flag("--text", draft.arguments.text, "print the graph's text instead");
       app.add_flag("--plan", draft.arguments.plan, "list the kernels instead, with the nodes that each covers");
       add_compiling(app, draft);
       add_json(app, draft);
     }},
    {"compile", "Compile a model into an artifact that starts without a compiler",
     "tessera compile model.onnx -o model.tess --dim batch=1..8",
     [](CLI::App& app, Draft& draft) {
       add_model(app, draft);
       app.add_option("-o,--output", draft.arguments.output,
                      "the artifact to write; only --report and --dump-after do without")
           ->type_name("FILE");
       app.add_flag("--report", draft.arguments.report,
                    "say what each pass did, what it cost, which rules matched, and what was not fused and why");
       app.add_option("--dump-after", draft.arguments.dump_after,
                      "print the graph's text after this pass, or after 'all'")
           ->type_name("PASS");
       add_compiling(app, draft);
       add_json(app, draft);
     }},
    {"bench", "Measure a model on random inputs", "tessera bench model.onnx --dim batch=1 --dim seq=128 --json",
     [](CLI::App& app, Draft& draft) {
       add_model(app, draft);
       add_inputs(app, draft);
       LanguageArguments& language = draft.arguments.language;
       app.add_option("--prompt", language.bench_prompt, "of a language model: tokens of the prompt (default 512)")
           ->check(CLI::PositiveNumber)
           ->type_name("N");
       app.add_option("--gen", language.bench_gen, "of a language model: tokens that follow it (default 64)")
           ->check(CLI::PositiveNumber)
           ->type_name("N");
       app.add_option("--sequences", language.bench_sequences, "of a language model: extended together (default 1)")
           ->check(CLI::PositiveNumber)
           ->type_name("N");
       add_cache(app, draft);
       app.add_option("--runs", draft.arguments.runs, "runs that are measured (default 20), after two that are not")
           ->check(CLI::Range(1, 1000000))
           ->type_name("N");
       app.add_option("--save-inputs", draft.arguments.output, "folder that the inputs are written to, as NAME.npy")
           ->type_name("FOLDER");
       app.add_flag("--serve", draft.arguments.serve,
                    "stay up: for each line on stdin, a number of runs, measure and print one JSON object");
       add_running(app, draft);
       add_compile_cache(app, draft);
       add_reference(app, draft);
       add_json(app, draft);
     }},
    {"verify", "Compare the optimised model with the reference", "tessera verify model.onnx --dim batch=2 --dim seq=16",
     [](CLI::App& app, Draft& draft) {
       add_model(app, draft);
       add_inputs(app, draft);
       app.add_option("--tolerance", draft.arguments.tolerance,
                      "allowed max|a-b| / max|b| of floats (default: what the type allows, 1e-4 for f32)")
           ->check(CLI::PositiveNumber)
           ->type_name("X");
       add_running(app, draft);
       add_json(app, draft);
     }},
    {"conformance", "Run a folder of ONNX conformance cases",
     "tessera conformance node-cases --skips tests/conformance/skips.txt",
     [](CLI::App& app, Draft& draft) {
       app.add_option("FOLDER", draft.arguments.subject, "holds CASE/model.onnx and CASE/test_data_set_N")->required();
       app.add_option("--skips", draft.arguments.skips, "file of cases to leave out, each with its reason")
           ->type_name("FILE");
       app.add_option("--filter", draft.arguments.filter, "run only the cases whose names match")->type_name("GLOB");
       add_running(app, draft);
       add_reference(app, draft);
       add_json(app, draft);
     }},
    {"quantize", "Write a model's weights as a GGUF file, in smaller types",
     "tessera quantize model-bf16.gguf -o model-q4.gguf --type Q4_K_M",
     [](CLI::App& app, Draft& draft) {
       app.add_option("MODEL", draft.arguments.subject, "a GGUF file, or a folder with config.json")->required();
       app.add_option("-o,--output", draft.arguments.output, "the GGUF file to write")->required()->type_name("FILE");
       app.add_option("--type", draft.arguments.type,
                      fmt::format("types of the weights (default Q4_K_M): {}", joined(engine::recipes(), " ")))
           ->type_name("TYPE");
       app.add_option("--threads", draft.arguments.session.threads, "threads (default: as many as there are cores)")
           ->check(CLI::Range(1, 1024))
           ->type_name("N");
       add_json(app, draft);
     }},
    {"ops", "List the operators", "tessera ops --json", add_json},
    {"info", "Say what this machine has: cores, instruction sets, caches, measured limits", "tessera info", add_json},
    {"explain", "Say what an error code means and what to do", "tessera explain E0312",
     [](CLI::App& app, Draft& draft) {
       app.add_option("CODE", draft.arguments.subject, "such as E0312")->required();
       add_json(app, draft);
     }},
};

// The options that a file holds come first, whatever the order on the command line: flags go over them.
Status read_options_file(int argc, const char* const* argv, Draft& draft) {
  std::string path;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--options" && i + 1 < argc) path = argv[i + 1];
    if (word.starts_with("--options=")) path = word.substr(word.find('=') + 1);
  }
  if (path.empty()) return {};
  constexpr size_t kMostBytes = size_t{1} << 20;
  TESSERA_ASSIGN(const std::string text, read_file(path, kMostBytes));
  Result<engine::OptionsFile> file = engine::parse_options(text);
  if (!file) return tl::unexpected<Error>(std::move(file).error().within("reading '" + path + "'"));
  draft.arguments.session.compile = std::move(file->compile);
  draft.arguments.dims = std::move(file->dims);
  if (!file->rule_files.empty()) draft.rules = file->rule_files.back();
  return {};
}

}  // namespace

Result<std::variant<Arguments, Reply>> parse_arguments(int argc, const char* const* argv) {
  CLI::App app("Tessera makes transformer models fast on the machine at hand.", "tessera");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("tessera ") + version());
  app.footer(
      "`tessera COMMAND --help` tells more. Exit codes: 0 done, 1 the answer is no, 2 wrong usage, 3 bad model or "
      "input,\n4 not supported, 5 out of a resource, 6 interrupted, 70 a bug of ours.");
  Draft draft;
  TESSERA_TRY(read_options_file(argc, argv, draft));
  for (const CommandSpec& spec : kCommands) {
    CLI::App* command = app.add_subcommand(spec.name, spec.about);
    command->footer(std::string("Example: ") + spec.example);
    spec.add_options(*command, draft);
  }
  // The parser of the command line is the one library here that reports by throwing; nothing of it leaves this
  // function.
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Reply{app.help()};
  } catch (const CLI::CallForAllHelp&) {
    return Reply{app.help("", CLI::AppFormatMode::All)};
  } catch (const CLI::CallForVersion& version) {
    return Reply{std::string(version.what()) + "\n"};
  } catch (const CLI::Error& error) {
    const auto chosen = app.get_subcommands();
    Error wrong{Code::usage, error.what()};
    wrong.hint = chosen.empty() ? "see `tessera --help`" : "see `tessera " + chosen.front()->get_name() + " --help`";
    return tl::unexpected<Error>(std::move(wrong));
  }
  draft.arguments.command = app.get_subcommands().front()->get_name();
  const std::string& command = draft.arguments.command;
  if ((command == "run" || command == "bench") && !draft.no_cache)
    draft.arguments.session.cache_folder =
        draft.cache_folder.empty() ? engine::default_cache_folder() : draft.cache_folder;
  for (const std::string& text : draft.dims) {
    TESSERA_ASSIGN(DimRange dim, engine::parse_dim(text));
    std::erase_if(draft.arguments.dims, [&](const DimRange& other) { return other.name == dim.name; });
    draft.arguments.dims.push_back(std::move(dim));
  }
  if (!draft.rules.empty()) {
    TESSERA_ASSIGN(const std::shared_ptr<const MappedFile> file, MappedFile::open(draft.rules));
    const auto bytes = file->bytes();
    draft.arguments.session.compile.rules.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::string& precision = draft.arguments.session.compile.precision;
  constexpr std::string_view kWords[] = {"", "keep", "bf16", "f16", "int8-dynamic", "strict"};
  const bool known = std::find(std::begin(kWords), std::end(kWords), precision) != std::end(kWords);
  if (!known && !precision.starts_with('[')) {  // an options file holds the rules themselves
    const Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(precision);
    if (!file)
      return fail(Code::usage,
                  "--precision {}: it is none of keep, bf16, f16, int8-dynamic and strict, and no file: {}", precision,
                  file.error().message);
    const auto bytes = (*file)->bytes();
    precision.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return std::move(draft.arguments);
}

}  // namespace tessera::cli
