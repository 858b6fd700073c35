#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/result.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/input_spec.h"
#include "cli/json.h"
#include "engine/inputs.h"
#include "engine/values.h"

namespace tessera::cli {
namespace {

// Before anything is computed: a folder that cannot be written to is found out at once.
Status check_folder(const std::string& folder) {
  if (folder.empty() || access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return fail(Code::file_write_failed, "the folder '{}' cannot be written to: {}", folder, std::strerror(errno));
}

Result<std::vector<std::string>> write_outputs(const std::string& folder, const std::vector<NamedValue>& outputs) {
  std::vector<std::string> files;
  for (const NamedValue& output : outputs) {
    TESSERA_ASSIGN(std::string path, engine::write_value(folder, output));
    files.push_back(std::move(path));
  }
  return files;
}

Json describe_output(const NamedValue& output, const std::string& file) {
  Json object{{"name", output.name}};
  if (const Tensor* tensor = output.value.tensor()) {
    object["shape"] = tensor->shape();
    object["dtype"] = name(tensor->dtype());
  } else {
    object["shape"] = nullptr;
    object["dtype"] = engine::type_text(output.value);
  }
  object["file"] = file.empty() ? Json() : Json(file);
  return object;
}

}  // namespace

Result<int> run(const Arguments& arguments) {
  TESSERA_TRY(check_folder(arguments.output));
  TESSERA_ASSIGN(const Model model, Model::load(arguments.subject, {arguments.dims}));
  TESSERA_ASSIGN(const std::vector<NamedValue> inputs, read_inputs(model.inputs(), arguments.inputs, arguments.seed));
  TESSERA_TRY(check_stop("compiling"));
  TESSERA_ASSIGN(const Session session, Session::create(model, arguments.session));
  TESSERA_ASSIGN(const std::vector<NamedValue> outputs, session.run(inputs, {.stop = &stop_requested}));

  std::vector<std::string> files(outputs.size());
  if (!arguments.output.empty()) {
    TESSERA_ASSIGN(files, write_outputs(arguments.output, outputs));
  }
  Json list = Json::array();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!arguments.json)
      say("{}: {}{}\n", outputs[i].name, engine::type_text(outputs[i].value),
          files[i].empty() ? "" : " -> " + files[i]);
    list.push_back(describe_output(outputs[i], files[i]));
  }
  if (arguments.json) print_json({{"outputs", std::move(list)}});
  return 0;
}

}  // namespace tessera::cli
