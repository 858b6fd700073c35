// Commands that tell about Tessera and the machine: ops, info, explain.
#include <fmt/format.h>

#include "base/cgroup.h"
#include "base/cpu.h"
#include "base/measure.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "ops/ops.h"
#include "tessera/tessera.h"

namespace tessera::cli {

Result<int> ops(const Arguments& arguments) {
  Json list = Json::array();
  for (const ir::OpDef* op : ops::all_ops()) {
    if (arguments.json) {
      list.push_back({{"name", op->name},
                      {"kind", op->is_primitive() ? "primitive" : "composite"},
                      {"signature", op->signature},
                      {"types", op->types},
                      {"doc", op->doc}});
    } else {
      say("{:<20} {:<9}  {}\n", op->name, op->is_primitive() ? "primitive" : "composite", op->signature);
    }
  }
  if (arguments.json) print_json({{"ops", std::move(list)}});
  return 0;
}

Result<int> info(const Arguments& arguments) {
  TESSERA_ASSIGN(const Isa isa, chosen_isa());
  const int cores = usable_cores();
  const CacheSizes caches = cache_sizes();
  const MachineMemory memory = machine_memory();
  const CgroupLimits limits = cgroup_limits();
  std::vector<std::string> isas;
  for (const Isa available : available_isas()) isas.emplace_back(name(available));
  TESSERA_TRY(check_stop("measuring"));
  TESSERA_ASSIGN(const double gflops, measure_peak_gflops(isa, cores));
  TESSERA_TRY(check_stop("measuring the memory"));
  TESSERA_ASSIGN(const double bandwidth, measure_read_bandwidth(cores));

  if (arguments.json) {
    print_json({{"version", version()},
                {"cpu", cpu_model_name()},
                {"cores", cores},
                {"allowed_cpus", allowed_cpus().size()},
                {"cpu_quota", limits.cpus},
                {"isa", name(isa)},
                {"isas", isas},
                {"l1d_bytes", caches.l1d},
                {"l2_bytes", caches.l2},
                {"l3_bytes", caches.l3},
                {"memory_bytes", memory.total},
                {"memory_available_bytes", memory.available},
                {"peak_gflops", gflops},
                {"read_bandwidth_gb_s", bandwidth}});
    return 0;
  }
  say("tessera            {}\n", version());
  say("CPU                {}\n", cpu_model_name());
  say("cores              {} (of {} allowed CPUs{})\n", cores, allowed_cpus().size(),
      limits.cpus ? fmt::format(", quota {:.2f}", *limits.cpus) : "");
  say("instruction set    {} (of {})\n", name(isa), joined(isas, ", "));
  say("caches             L1d {} KiB, L2 {} KiB, L3 {} KiB\n", caches.l1d >> 10, caches.l2 >> 10, caches.l3 >> 10);
  say("memory             {} of {} available\n", bytes_text(static_cast<double>(memory.available)),
      bytes_text(static_cast<double>(memory.total)));
  say("f32 multiply-add   {:.0f} GFLOP/s measured\n", gflops);
  say("memory reads       {:.1f} GB/s measured\n", bandwidth);
  return 0;
}

Result<int> explain(const Arguments& arguments) {
  std::string wanted = arguments.subject;
  for (char& c : wanted) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (size_t i = 0; i < code_count(); ++i) {
    const CodeInfo& code = all_codes()[i];
    if (code_name(code.code) != wanted) continue;
    if (arguments.json) {
      print_json({{"code", code_name(code.code)},
                  {"name", code.name},
                  {"title", code.title},
                  {"cause", code.cause},
                  {"fix", code.fix},
                  {"exit_code", code.exit_code}});
    } else {
      say("{} {}\ncause: {}\nfix:   {}\nexit code {}\n", code_name(code.code), code.title, code.cause, code.fix,
          code.exit_code);
    }
    return 0;
  }
  std::vector<std::string> known;
  for (size_t i = 0; i < code_count(); ++i) known.push_back(code_name(all_codes()[i].code));
  return fail(Code::usage, "there is no code '{}'; there are {}", arguments.subject, joined(known, " "));
}

}  // namespace tessera::cli
