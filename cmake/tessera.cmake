# Flags that every target of the project shares, and the helpers that declare its libraries and tests.

add_library(tessera_flags INTERFACE)
target_compile_options(tessera_flags INTERFACE -Wall -Wextra -Wpedantic)
if(TESSERA_WERROR)
  target_compile_options(tessera_flags INTERFACE -Werror)
endif()
# Reading headers is most of what most files take. Names of one folder's files must then differ, those in unnamed
# namespaces too. Not the kernels: each family exports a table of one name, and their time is the optimiser's.
set(CMAKE_UNITY_BUILD ${TESSERA_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
if(TESSERA_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # It takes a file that another one includes for a header, whose types must not hold those of unnamed namespaces.
  target_compile_options(tessera_flags INTERFACE -Wno-subobject-linkage)
endif()
if(TESSERA_SANITIZE)
  target_compile_options(tessera_flags INTERFACE -fsanitize=${TESSERA_SANITIZE} -fno-sanitize-recover=all
                                                 -fno-omit-frame-pointer)
  target_link_options(tessera_flags INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()
if(TESSERA_FUZZ)
  target_compile_options(tessera_flags INTERFACE -fsanitize=fuzzer-no-link)
  add_custom_target(fuzzers)
endif()

if(TESSERA_SANITIZE)
  set(TESSERA_TEST_OPTIMISATION -O0)
else()
  set(TESSERA_TEST_OPTIMISATION -O1)
endif()

# tessera_library(NAME deps...): the library of the folder being processed, from its *.cpp; x_test.cpp beside x.cpp
# becomes part of the test program NAME_test.
function(tessera_library name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz)\\.cpp$|/isa/")  # isa/: see src/kernels/CMakeLists.txt
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  add_library(tessera_${name} STATIC ${sources})
  target_include_directories(tessera_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                                    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  set(deps ${ARGN})
  list(TRANSFORM deps PREPEND tessera_)
  target_link_libraries(tessera_${name} PUBLIC ${deps} fmt::fmt tl::expected PRIVATE tessera_flags)
  tessera_precompiled(tessera_${name} library ${TESSERA_PRECOMPILED_FOR_${name}})
  if(TESSERA_TESTS AND tests)
    tessera_test(${name}_test ${name} ${tests})
  endif()
endfunction()

# tessera_cold(TARGET): of code whose time no user waits for, the compiler need not make the most: that takes it a third
# longer.
function(tessera_cold target)
  if(NOT TESSERA_SANITIZE)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# tessera_test(NAME library sources...): a GoogleTest program, each of its tests known to ctest, none without a timeout.
function(tessera_test name library)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE tessera_${library} tessera_flags GTest::gtest_main)
  # Tests run once and are compiled often: optimising and instrumenting their many inlined checks takes most of a build.
  target_compile_options(${name} PRIVATE ${TESSERA_TEST_OPTIMISATION})
  tessera_precompiled(${name} test)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gtest_discover_tests(${name} TEST_PREFIX "${name}." PROPERTIES TIMEOUT 300 DISCOVERY_TIMEOUT 60
                       WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endfunction()

# tessera_fuzzer(NAME library source): a libFuzzer program under TESSERA_FUZZ; otherwise a test that runs the committed
# corpus once, which also keeps the fuzzers compiling with every build.
function(tessera_fuzzer name library)
  if(TESSERA_FUZZ)
    add_executable(${name} ${ARGN})
    target_link_libraries(${name} PRIVATE tessera_${library} tessera_flags -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    add_dependencies(fuzzers ${name})
  elseif(TESSERA_TESTS)
    add_executable(${name} ${ARGN} replay.cpp)
    target_link_libraries(${name} PRIVATE tessera_${library} tessera_flags)
    target_compile_options(${name} PRIVATE -O1)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
    if(IS_DIRECTORY ${corpus})
      add_test(NAME corpus.${name} COMMAND ${name} ${corpus})
      set_tests_properties(corpus.${name} PROPERTIES TIMEOUT 120)
    endif()
  endif()
endfunction()
