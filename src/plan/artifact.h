// The .tess artifact: a plan and its constants in one file, mapped when it is used.
//
//   header     magic, version, what the kernel table looked like, sizes and checksums
//   plan       the records of wire.h, what each constant is and where it lies, notes
//   constants  each at a multiple of 64 bytes, the first at a multiple of 4096
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/file.h"
#include "plan/plan.h"
#include "tessera/error.h"

namespace tessera::plan {

// What else its maker wants to find again: options, a graph's text, ...
using Notes = std::map<std::string, std::string>;

struct Artifact {
  std::shared_ptr<const Plan> plan;  // its constants lie in the mapped file, which they keep alive
  Notes notes;
};

// Writes the whole file or nothing. E0102.
Status write_artifact(const std::string& path, const Plan& plan, const Notes& notes = {});

// Whether the bytes begin as an artifact does.
bool is_artifact(std::span<const std::byte> bytes);

// Reads an artifact and verifies it, except for the constants' contents. `keep` keeps `bytes` alive. E0601 when another
// version wrote it, E0602 when it is damaged or does not verify.
Result<Artifact> read_artifact(std::span<const std::byte> bytes, std::shared_ptr<const void> keep);
Result<Artifact> load_artifact(const std::string& path);

// Reads all of the constants and compares them with their checksum. E0602.
Status verify_constants(std::span<const std::byte> bytes);

// The part of an artifact behind the header, without checksums: `plan` as written by write_artifact, `data` the
// constants.
Result<Artifact> read_plan(std::span<const std::byte> plan, std::span<const std::byte> data,
                           std::shared_ptr<const void> keep);

}  // namespace tessera::plan
