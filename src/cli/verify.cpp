#include "engine/verify.h"

#include "base/result.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/input_spec.h"
#include "cli/json.h"

namespace tessera::cli {

Result<int> verify(const Arguments& arguments) {
  TESSERA_ASSIGN(const Model model, Model::load(arguments.subject, {arguments.dims}));
  TESSERA_ASSIGN(std::vector<NamedValue> inputs, read_inputs(model.inputs(), arguments.inputs, arguments.seed));
  TESSERA_TRY(add_random_inputs(model.inputs(), arguments.seed, inputs));
  TESSERA_ASSIGN(const engine::Verdict verdict,
                 engine::verify(model, arguments.session, inputs, arguments.tolerance, &stop_requested));
  if (arguments.json) {
    Json worst;
    if (const engine::OutputVerdict* output = verdict.worst(); output != nullptr && output->distance)
      worst = {{"value", output->name},
               {"max_abs", output->distance->max_abs},
               {"relative", output->distance->relative},
               {"cosine", output->distance->cosine}};
    print_json({{"ok", verdict.ok}, {"worst", std::move(worst)}, {"culprit", nullptr}});
    return verdict.ok ? 0 : 1;
  }
  for (const engine::OutputVerdict& output : verdict.outputs) {
    if (output.ok && output.distance) {
      say("ok      {}: max|a-b| {:.3g}, relative {:.3g} of {:.3g} allowed, cosine {:.9f}\n", output.name,
          output.distance->max_abs, output.distance->relative, output.tolerance, output.distance->cosine);
    } else {
      say("{:<7} {}{}{}\n", output.ok ? "ok" : "DIFFERS", output.name, output.why.empty() ? "" : ": ", output.why);
    }
  }
  say("{}\n", verdict.ok ? "the optimised model agrees with the reference" : "the optimised model differs");
  return verdict.ok ? 0 : 1;
}

}  // namespace tessera::cli
