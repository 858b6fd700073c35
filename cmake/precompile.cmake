# Precompiled headers, for the build's time only: reading the standard library and fmt is a third of most compilations.
# Only headers of other libraries, so that no change of ours compiles everything again. A file must still include what
# it uses: builds with clang, and those of the fuzzers, have none of this.
set(TESSERA_PRECOMPILED
  <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <cstddef> <cstdint> <cstdio> <cstring> <functional>
  <limits> <list> <map> <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <tuple>
  <type_traits> <unordered_map> <unordered_set> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h>
  <tl/expected.hpp>)

if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(TESSERA_PCH OFF)
endif()

# tessera_precompiled(TARGET kind): one precompiled header serves all targets whose code is compiled alike.
#   library  the libraries of src/
#   test     the test programs, with GoogleTest
#   further headers (of other libraries) make it one of its own
function(tessera_precompiled target kind)
  if(TESSERA_PCH AND ARGN)
    target_precompile_headers(${target} PRIVATE ${TESSERA_PRECOMPILED} ${ARGN})
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  elseif(TESSERA_PCH)
    target_precompile_headers(${target} REUSE_FROM tessera_precompiled_${kind})
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

if(TESSERA_PCH)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cpp CONTENT "int main() {}\n")
  add_library(tessera_precompiled_library OBJECT ${PROJECT_BINARY_DIR}/precompiled.cpp)
  target_precompile_headers(tessera_precompiled_library PRIVATE ${TESSERA_PRECOMPILED})
  target_link_libraries(tessera_precompiled_library PRIVATE fmt::fmt tl::expected tessera_flags)
  target_compile_options(tessera_precompiled_library PRIVATE -fpch-preprocess)
  if(TESSERA_TESTS)
    add_executable(tessera_precompiled_test ${PROJECT_BINARY_DIR}/precompiled.cpp)
    target_precompile_headers(tessera_precompiled_test PRIVATE ${TESSERA_PRECOMPILED} <gtest/gtest.h>)
    target_link_libraries(tessera_precompiled_test PRIVATE fmt::fmt tl::expected tessera_flags GTest::gtest)
    target_compile_options(tessera_precompiled_test PRIVATE -fpch-preprocess ${TESSERA_TEST_OPTIMISATION})
  endif()
endif()
