#!/usr/bin/env bash
# From a bare Debian 12 to text read from pictures: installs what is missing, builds, fetches a trained text recogniser
# and reads the lines of text in examples/ocr/pictures with it.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"

scripts/install.sh build
echo "building (the first time takes some minutes)"
log=build/release/quickstart.log
mkdir -p build/release
{ cmake --preset release && cmake --build --preset release -j "$(nproc)" --target tessera ocr; } >"$log" 2>&1 ||
  { tail -n 30 "$log" >&2; echo "quickstart.sh: the build failed; all of its output is in $log" >&2; exit 1; }
model=$(scripts/fetch_model.sh)
build/release/bin/ocr "$model/recogniser.onnx" "$model/keys.txt" --expect examples/ocr/expected.tsv \
  examples/ocr/pictures/*.png
