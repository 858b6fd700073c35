#!/usr/bin/env bash
# run.sh TESSERA FOLDER [options]: `tessera conformance` on the cases of com.microsoft operators, unpacked into FOLDER.
set -euo pipefail
tessera=$1 folder=$2
shift 2
rm -rf "$folder"
mkdir -p "$folder"
cmake -E chdir "$folder" cmake -E tar xf "$(dirname "$(readlink -f "$0")")/cases.tar.xz"
exec "$tessera" conformance "$folder" "$@"
