#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. The last thing printed is ctest's summary of the release build.
#   TESSERA_TEST_STAGES   which of "debug emulated aarch64 fuzz release" to run (default: "fuzz release")
#                         debug: the tests under the address and undefined-behaviour sanitizers; its build takes longest
#                         fuzz: each libFuzzer program, under the same sanitizers, for FUZZ_SECONDS (default 10) from FUZZ_SEED
#                         (default 1: a run can be repeated; 0 takes another each time)
#                         emulated: the kernels for AVX-512, on a CPU that need not have it
#                         aarch64: the kernels, and what they stand on, built for AArch64 and run by QEMU
#                         release: the optimised build and all tests
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
stages=${TESSERA_TEST_STAGES:-fuzz release}
seconds=${FUZZ_SECONDS:-10}
seed=${FUZZ_SEED:-1}
jobs=$(nproc)

die() { echo "test.sh: $*" >&2; exit 1; }
# A finding does not keep the stages after it from running; the exit status tells of it.
failed=0
fail() { echo "test.sh: $*" >&2; failed=1; }

# build PRESET [cmake --build arguments]: quiet unless it fails.
build() {
  local preset=$1 log=build/$1/build.log
  shift
  mkdir -p "build/$preset"
  { cmake --preset "$preset" && cmake --build --preset "$preset" -j "$jobs" "$@"; } >"$log" 2>&1 ||
    { tail -n 40 "$log" >&2; die "the $preset build failed; all of its output is in $log"; }
}

debug() {
  build debug
  # The checks of the tree itself do not depend on the build; release runs them.
  ctest --preset debug -j "$jobs" --label-exclude house --progress || failed=1
}

emulated() {
  build emulated --target kernels_reference_test
  build/emulated/tests/kernels_reference_test --gtest_brief=1 || failed=1
}

aarch64() {
  scripts/install.sh aarch64
  build aarch64
  ctest --preset aarch64 -j "$jobs" --progress || failed=1
}

# What the fuzzers of models start from: our own bad and sound models, and the smallest of the ONNX cases where those are.
seeds() {
  local to=build/fuzz/seeds
  rm -rf "$to"
  python3 -B tests/bad_input/bad_models.py "$to/onnx_model_fuzz"
  local cases=../shared/data/onnx-node model
  [[ ! -d $cases ]] || find "$cases" -name model.onnx -size -2 -print0 | sort -z | while IFS= read -r -d '' model; do
    cp "$model" "$to/onnx_model_fuzz/case.$(basename "$(dirname "$model")")"
  done
  ln -s onnx_model_fuzz "$to/onnx_proto_fuzz"
}

fuzz() {
  build fuzz --target fuzzers
  seeds
  local program name
  for program in build/fuzz/fuzz/*; do
    [[ -x $program && -f $program ]] || continue
    name=$(basename "$program")
    mkdir -p "build/fuzz/corpus/$name" build/fuzz/findings
    local corpora=("build/fuzz/corpus/$name")
    local folder
    for folder in "tests/fuzz/corpus/$name" "build/fuzz/seeds/$name"; do
      [[ -d $folder ]] && corpora+=("$folder")
    done
    # Without the schedule by entropy, which takes most of the time that reading the seeds takes.
    "$program" -seed="$seed" -entropic=0 -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="build/fuzz/findings/$name." \
      "${corpora[@]}" >"build/fuzz/$name.log" 2>&1 ||
      { tail -n 40 "build/fuzz/$name.log" >&2; fail "$name found an input that fails; it is in build/fuzz/findings"; continue; }
    echo "$name: $(tail -n 1 "build/fuzz/$name.log")"
  done
}

release() {
  build release
  echo "built in $SECONDS s"
  ctest --preset release -j "$jobs" || failed=1
}

scripts/install.sh build test
scripts/fetch_model.sh >/dev/null || echo "test.sh: without the model, the test that reads the pictures is skipped" >&2
for stage in $stages; do
  [[ $stage =~ ^(debug|emulated|aarch64|fuzz|release)$ ]] || die "no stage '$stage'; there are debug, emulated, aarch64, fuzz, release"
done
for stage in debug emulated aarch64 fuzz release; do
  [[ " $stages " == *" $stage "* ]] || continue
  SECONDS=0
  echo "== $stage"
  "$stage"
  # The release stage ends with ctest's summary, which has its time.
  [[ $stage == release ]] || echo "== $stage took $SECONDS s"
done
exit "$failed"
