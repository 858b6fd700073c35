#include "engine/conformance.h"

#include <algorithm>
#include <filesystem>

#include "base/result.h"
#include "base/strings.h"
#include "engine/compare.h"
#include "engine/values.h"

namespace tessera::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBlank = " \t\r";
constexpr std::string_view kShapeOnly = "shape-only";

const SkipRule* rule_for(const std::string& name, std::span<const SkipRule> rules) {
  for (const SkipRule& rule : rules)
    if (glob_match(rule.glob, name)) return &rule;
  return nullptr;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

struct Case {
  const Session& session;
  bool shape_only;
  const std::atomic<bool>* stop;
};

// What is wrong with one data set; an empty text when nothing is.
Result<std::string> run_data_set(const std::string& folder, const Case& run) {
  const Model& model = run.session.model();
  std::vector<NamedValue> inputs;
  for (size_t i = 0; i < model.inputs().size(); ++i) {
    const ValueInfo& info = model.inputs()[i];
    const std::string path = folder + "/input_" + std::to_string(i) + ".pb";
    if (!exists(path)) continue;  // an optional input, or one that the session finds missing
    TESSERA_ASSIGN(Value value, read_value(path, info));
    inputs.push_back({info.name, std::move(value)});
  }
  TESSERA_ASSIGN(std::vector<NamedValue> outputs, run.session.run(inputs, {.stop = run.stop}));
  size_t compared = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string path = folder + "/output_" + std::to_string(i) + ".pb";
    if (!exists(path)) continue;
    TESSERA_ASSIGN(Value expected, read_value(path, model.outputs()[i]));
    const auto why =
        run.shape_only ? difference_of_random(outputs[i].value, expected) : difference(outputs[i].value, expected);
    if (why) return "output '" + outputs[i].name + "': " + *why;
    ++compared;
  }
  if (compared == 0) return std::string("the data set has no output to compare with");
  return std::string();
}

Result<std::string> run_case(const std::string& folder, bool shape_only, const ConformanceOptions& options) {
  TESSERA_ASSIGN(Model model, Model::load(folder + "/model.onnx"));
  TESSERA_ASSIGN(Session session, Session::create(model, options.session));
  int sets = 0;
  for (;; ++sets) {
    const std::string data = folder + "/test_data_set_" + std::to_string(sets);
    if (!exists(data)) break;
    Result<std::string> wrong = run_data_set(data, {session, shape_only, options.stop});
    if (!wrong || !wrong->empty()) {
      if (wrong && sets > 0) *wrong = "data set " + std::to_string(sets) + ": " + *wrong;
      return wrong;
    }
  }
  return sets == 0 ? "there is no test_data_set_0" : std::string();
}

CaseResult judge(const std::string& root, const std::string& name, const ConformanceOptions& options) {
  const SkipRule* rule = rule_for(name, options.skips);
  if (rule != nullptr && !rule->shape_only) return {name, CaseResult::Status::skipped, rule->reason};
  const Result<std::string> wrong = run_case(root + "/" + name, rule != nullptr, options);
  if (!wrong) return {name, CaseResult::Status::failed, wrong.error().to_string()};
  if (!wrong->empty()) return {name, CaseResult::Status::failed, *wrong};
  return {name, CaseResult::Status::passed, ""};
}

}  // namespace

Result<std::vector<SkipRule>> parse_skips(std::string_view text) {
  std::vector<SkipRule> rules;
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    auto word = [&] {
      rest.remove_prefix(std::min(rest.find_first_not_of(kBlank), rest.size()));
      const std::string_view found = rest.substr(0, rest.find_first_of(kBlank));
      rest.remove_prefix(found.size());
      rest.remove_prefix(std::min(rest.find_first_not_of(kBlank), rest.size()));
      return found;
    };
    const std::string_view glob = word();
    if (glob.empty() || glob.front() == '#') continue;
    SkipRule rule{std::string(glob), {}, false};
    if (rest.starts_with(kShapeOnly)) rule.shape_only = true, word();
    rule.reason = rest.substr(0, rest.find_last_not_of(kBlank) + 1);
    if (rule.reason.empty())
      return fail(Code::file_malformed, "line {}: '{}' is skipped without a reason", line, rule.glob);
    rules.push_back(std::move(rule));
  }
  return rules;
}

Result<std::vector<CaseResult>> run_conformance(const std::string& folder, const ConformanceOptions& options) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (glob_match(options.filter, name) && exists(folder + "/" + name + "/model.onnx"))
      names.push_back(std::move(name));
  }
  if (error) return fail(Code::file_not_found, "'{}' cannot be read: {}", folder, error.message());
  if (names.empty())
    return fail(Code::file_not_found, "'{}' holds no CASE/model.onnx{}", folder,
                options.filter == "*" ? "" : " that matches '" + options.filter + "'");
  std::sort(names.begin(), names.end());

  std::vector<CaseResult> results;
  for (const std::string& name : names) {
    if (options.stop != nullptr && options.stop->load())
      return fail(Code::interrupted, "stopped before case '{}', after {} of {}", name, results.size(), names.size());
    results.push_back(judge(folder, name, options));
    if (options.on_case) options.on_case(results.back());
  }
  return results;
}

}  // namespace tessera::engine
