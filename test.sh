#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. The last thing printed is ctest's summary of the release build.
#   TESSERA_TEST_STAGES   which of "debug fuzz release" to run (default: "fuzz release")
#                         debug: the tests under the address and undefined-behaviour sanitizers; its build takes longest
#                         fuzz: each libFuzzer program, under the same sanitizers, for FUZZ_SECONDS (default 10)
#                         release: the optimised build and all tests
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
stages=${TESSERA_TEST_STAGES:-fuzz release}
seconds=${FUZZ_SECONDS:-10}
jobs=$(nproc)

die() { echo "test.sh: $*" >&2; exit 1; }

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
  ctest --preset debug -j "$jobs" --label-exclude house --progress
}

fuzz() {
  build fuzz --target fuzzers
  local program name
  for program in build/fuzz/fuzz/*; do
    [[ -x $program && -f $program ]] || continue
    name=$(basename "$program")
    mkdir -p "build/fuzz/corpus/$name" build/fuzz/findings
    local corpora=("build/fuzz/corpus/$name")
    [[ -d tests/fuzz/corpus/$name ]] && corpora+=("tests/fuzz/corpus/$name")
    "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="build/fuzz/findings/$name." \
      "${corpora[@]}" >"build/fuzz/$name.log" 2>&1 ||
      { tail -n 40 "build/fuzz/$name.log" >&2; die "$name found an input that fails; it is in build/fuzz/findings"; }
    echo "$name: $(tail -n 1 "build/fuzz/$name.log")"
  done
}

release() {
  build release
  echo "built in $SECONDS s"
  ctest --preset release -j "$jobs"
}

scripts/install.sh build test
scripts/fetch_model.sh >/dev/null || echo "test.sh: without the model, the test that reads the pictures is skipped" >&2
for stage in $stages; do
  [[ $stage == debug || $stage == fuzz || $stage == release ]] || die "no stage '$stage'; there are debug, fuzz, release"
done
for stage in debug fuzz release; do
  [[ " $stages " == *" $stage "* ]] || continue
  SECONDS=0
  echo "== $stage"
  "$stage"
  # The release stage ends with ctest's summary, which has its time.
  [[ $stage == release ]] || echo "== $stage took $SECONDS s"
done
