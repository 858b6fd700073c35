// The kernel table as data: which kernel may run which operator. plan/kernel_desc.h parses the constraints.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::kernels {

// One line of table.def, where the columns' grammar stands.
struct KernelDesc {
  const char* family;  // its source: isa/<family>.cpp
  const char* op;
  const char* kernel;
  const char* types;
  const char* layouts;
  uint32_t in_place;
};

// The lines of table.def in order.
std::span<const KernelDesc> kernel_table();

}  // namespace tessera::kernels
