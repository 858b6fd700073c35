#include "engine/verify.h"

#include <fmt/format.h>

#include "base/result.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/input_spec.h"
#include "cli/json.h"

namespace tessera::cli {
namespace {

Json describe(const engine::ValueVerdict& value) {
  Json object = {{"value", value.name}, {"output", value.output}, {"ok", value.ok}};
  if (value.distance) {
    object["max_abs"] = value.distance->max_abs;
    object["relative"] = value.distance->relative;
    object["cosine"] = value.distance->cosine;
    object["tolerance"] = value.tolerance;
  }
  if (!value.why.empty()) object["why"] = value.why;
  return object;
}

Json describe(const engine::Culprit& culprit) {
  Json object = {{"pass", culprit.pass},
                 {"rule", culprit.rule},
                 {"node", culprit.node},
                 {"equation", culprit.equation},
                 {"value", culprit.value}};
  if (culprit.rewrite >= 0) object["rewrite"] = culprit.rewrite;
  if (!culprit.covers.empty()) object["covers"] = culprit.covers;
  return object;
}

void print(const engine::Culprit& culprit) {
  if (culprit.pass == "memory") return;
  if (!culprit.value.empty()) say("the first value that differs is '{}'\n", culprit.value);
  if (culprit.rewrite < 0) {
    say("no rewrite is at fault: the kernel '{}' is, at node '{}'\n  {}\n", culprit.rule, culprit.node,
        culprit.equation);
    if (!culprit.covers.empty()) say("  it covers {}\n", joined(culprit.covers, ", "));
    return;
  }
  say("pass '{}', rule '{}', rewrite {} is at fault, at node '{}'\n  {}\n", culprit.pass, culprit.rule, culprit.rewrite,
      culprit.node, culprit.equation);
}

}  // namespace

Result<int> verify(const Arguments& arguments) {
  TESSERA_ASSIGN(const Model model, Model::load(arguments.subject, {arguments.dims}));
  TESSERA_ASSIGN(std::vector<NamedValue> inputs, read_inputs(model.inputs(), arguments.inputs, arguments.seed));
  TESSERA_TRY(add_random_inputs(model.inputs(), arguments.seed, inputs));
  TESSERA_ASSIGN(const engine::Verdict verdict,
                 engine::verify(model, arguments.session, inputs, arguments.tolerance, &stop_requested));
  if (arguments.json) {
    Json worst, values = Json::array();
    if (const engine::ValueVerdict* value = verdict.worst(); value != nullptr && value->distance)
      worst = describe(*value);
    for (const engine::ValueVerdict& value : verdict.values) values.push_back(describe(value));
    print_json({{"ok", verdict.ok},
                {"worst", std::move(worst)},
                {"culprit", verdict.culprit ? describe(*verdict.culprit) : Json()},
                {"note", verdict.note},
                {"values", std::move(values)}});
    return verdict.ok ? 0 : 1;
  }
  for (const engine::ValueVerdict& value : verdict.values) {
    const std::string_view kind = value.output ? "output " : "";
    if (value.ok && value.distance) {
      say("ok      {}{}: max|a-b| {:.3g}, relative {:.3g} of {:.3g} allowed, cosine {:.9f}\n", kind, value.name,
          value.distance->max_abs, value.distance->relative, value.tolerance, value.distance->cosine);
    } else {
      say("{:<7} {}{}{}{}\n", value.ok ? "ok" : "DIFFERS", kind, value.name, value.why.empty() ? "" : ": ", value.why);
    }
  }
  if (verdict.culprit) print(*verdict.culprit);
  if (!verdict.note.empty()) say("{}\n", verdict.note);
  say("{}\n", verdict.ok ? "the optimised model agrees with the reference" : "the optimised model differs");
  return verdict.ok ? 0 : 1;
}

}  // namespace tessera::cli
