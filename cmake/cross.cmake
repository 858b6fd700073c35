# A cross build has the host's headers but none of its libraries: fmt as headers only, GoogleTest from its sources, and of
# the project what needs no others, which are the kernels, what their tests compare them with, and what those stand on.
set(TESSERA_FOLDERS base tensor formats kernels plan ir ops)
add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
add_library(tl::expected INTERFACE IMPORTED GLOBAL)
if(TESSERA_TESTS)
  enable_testing()
  add_subdirectory(/usr/src/googletest ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL SYSTEM)
  include(GoogleTest)
endif()
