// Loading models and running them: load -> session -> run.
//
// Thread rules: a Model is immutable and may be used from any number of threads. A Session may run requests from
// several threads at once; each request has its own memory, and they share one pool of threads. Values that a caller
// gives are read, never changed, and must not change until run() returns.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor.h"

namespace tessera {

// An input or output of a model as it is declared.
struct ValueInfo {
  enum class Kind : uint8_t { tensor, sequence, optional };

  std::string name;
  Kind kind = Kind::tensor;
  DType dtype = DType::f32;        // of sequences and optionals: of the tensors in them
  bool ranked = true;              // false when not even the number of axes is known before a run
  std::vector<std::string> shape;  // one entry an axis: "768", "batch", "2*seq". Empty for sequences
  Dims sizes;                      // the same as numbers, -1 where only a run tells
  std::string type;                // all of it: "f32[batch, seq, 768]", "seq<i64[n]>"
};

struct NamedValue {
  std::string name;
  Value value;
};

// What is known about a named size beforehand. One value (lo == hi) makes it a constant; a list of sizes allows these
// and no others, and keeps a plan for each. A run with another size is an error (E0316).
struct DimRange {
  std::string name;
  int64_t lo = 0;
  int64_t hi = INT64_MAX;
  std::vector<int64_t> sizes = {};  // ascending, lo and hi the first and the last; empty: all between lo and hi
};

struct LoadOptions {
  std::vector<DimRange> dims;
};

// A model as it was read. Copies share it.
class Model {
 public:
  // An ONNX model, a graph's text (.tg) or a compiled artifact (.tess), told apart by content. The file is mapped, not
  // copied, and must not be changed while the model or one of its sessions lives. E0101 when it cannot be opened,
  // E0106 when it is none of these, E0401 with all operators that are not supported, and what reading finds wrong.
  static Result<Model> load(const std::string& path, LoadOptions options = {});
  // The same from memory, which `keep` keeps alive or the caller does. External data is looked for in `folder`.
  static Result<Model> from_memory(std::span<const std::byte> bytes, std::string folder = "", LoadOptions options = {},
                                   std::shared_ptr<const void> keep = nullptr);

  const std::vector<ValueInfo>& inputs() const;
  const std::vector<ValueInfo>& outputs() const;
  const std::string& path() const;  // empty for models from memory

  class Impl;
  explicit Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// How a model's graph becomes a plan.
struct CompileOptions {
  int optimisation = 2;                      // 0 to 3, as -O of the command
  bool strict = false;                       // only rewrites that keep every bit
  bool exact_activations = false;            // do not round what quantized and bf16 weights are multiplied by
  bool approximate = false;                  // also rules whose sides are only nearly equal
  std::string rules = {};                    // rules of the caller's own, as text: docs/rules.md
  std::string precision = {};                // of layers: bf16, f16, int8-dynamic, strict, or rules as JSON text
  std::vector<std::string> disable = {};     // names of passes and rules
  int64_t stop_after = -1;                   // rewrites; negative: no limit
  std::vector<std::string> passes = {};      // exactly these, in this order; empty: those of the level
  int64_t fold_elements = int64_t{1} << 20;  // the most elements of operands and results of one folded node
  bool reuse_memory = true;                  // intermediates take each other's memory
};

struct SessionOptions {
  CompileOptions compile = {};
  int threads = 0;                         // 0: as many as the container gives
  bool reference = false;                  // run on the reference interpreter: exact and slow
  size_t cached_shapes = 16;               // plans kept for sizes that break an assumption of the general plan
  std::string cache_folder = {};           // where compiled plans are kept for later processes; empty: nowhere
  int64_t cache_bytes = int64_t{4} << 30;  // the most that they take there; the least recently used go
};

struct RunOptions {
  // Memory for outputs, by name: a tensor of the output's exact type and shape is written into, without a copy where
  // the plan allows, and must not overlap an input. Outputs that are not named are allocated.
  std::span<const NamedValue> outputs = {};
  const std::atomic<bool>* stop = nullptr;  // once it is true the run ends with E0504
};

// Facts about a session, and about the last run that finished. The live-set bound is the most bytes of intermediates
// and outputs that live in one step: no arena can be smaller.
struct SessionStatistics {
  std::string isa;  // of the kernels that run; "reference" for the interpreter
  int threads = 1;
  int64_t nodes = 0;         // of the graph that runs, constants left out
  int64_t kernels = 0;       // steps that read or write tensor memory
  int64_t host_steps = 0;    // those of them that run on the reference interpreter
  int64_t weight_bytes = 0;  // of constants
  int64_t runs = 0;
  int64_t specialised_plans = 0;  // in the cache
  int64_t shapes_planned = 0;     // runs whose sizes had not been seen, or not lately
  double plan_ms = 0;             // planning for the last of them
  bool from_cache = false;        // the plan lay in SessionOptions::cache_folder
  int64_t arena_bytes = 0;
  int64_t peak_activation_bytes = 0;
  int64_t live_set_bound_bytes = 0;
};

// A model made ready to run.
class Session {
 public:
  // Compiles the model. E0802 when TESSERA_ISA names an instruction set that is not there.
  static Result<Session> create(const Model& model, SessionOptions options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Runs one request. Inputs may come in any order; all of the model's are needed (optional ones may be left out).
  // Gives all outputs in the model's order; they own their memory. E0501 and E0502 for names, E0302, E0303, E0312,
  // E0313 and E0316 for types and shapes, each with what was expected and what was given.
  Result<std::vector<NamedValue>> run(std::span<const NamedValue> inputs, const RunOptions& options = {}) const;

  SessionStatistics statistics() const;
  const Model& model() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
