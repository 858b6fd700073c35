// Compiled plans kept for later processes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/model.h"

namespace tessera::engine {

// The folder that commands use: TESSERA_CACHE_DIR, else tessera in XDG_CACHE_HOME, else ~/.cache/tessera; empty when
// none of them is set.
std::string default_cache_folder();

// Artifacts in one folder. Any number of processes and threads may use it at once: entries appear whole by renaming,
// the one that removes holds a lock, and a mapped entry that is removed stays readable.
class CompileCache {
 public:
  // `most_bytes`: of all entries; the least recently used go when a new one does not fit.
  CompileCache(std::string folder, int64_t most_bytes) : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  // A model whose plan is worth keeping: reading it back costs less than making it.
  static bool worth_keeping(const ir::Graph& graph);
  // What the plan of this graph of the model depends on: the contents of the model and what it was read with, the
  // options, this build, and the instruction set. Contents of files that have not changed since they were last
  // read are not read again.
  std::string key(const Model::Impl& model, const ir::Graph& graph, const tessera::CompileOptions& options,
                  std::string_view isa) const;

  struct Entry {
    std::shared_ptr<const plan::Plan> plan;
    int64_t nodes = 0;  // of the optimised graph
  };
  // Nothing when there is none. One that is damaged, or was made for something else, is removed. An entry that was
  // touched since it was written is read and checked as a whole.
  std::optional<Entry> find(const std::string& key) const;
  // Keeps a plan that stands for itself. E0102 when the folder cannot be written to.
  Status insert(const std::string& key, const plan::Plan& plan, int64_t nodes) const;

 private:
  std::string path(const std::string& key, std::string_view ending) const;
  std::string contents_of(const Model::Impl& model) const;
  void make_room() const;

  std::string folder_;
  int64_t most_bytes_;
};

}  // namespace tessera::engine
