#!/usr/bin/env bash
# run.sh TESSERA FOLDER [SKIPS] [options]: `tessera conformance` on a folder of cases, with the skip file beside this
# script, and a further one. Exit code 77, for "skipped", where the cases are not there.
set -euo pipefail
tessera=$1 folder=$2
shift 2
[[ -d $folder ]] || { echo "skipped: there are no cases in $folder"; exit 77; }
skips=("$(dirname "$(readlink -f "$0")")/skips.txt")
[[ ${1:-} != *.txt ]] || { skips+=("$1"); shift; }
all=$(mktemp)
trap 'rm -f "$all"' EXIT
cat "${skips[@]}" >"$all"
"$tessera" conformance "$folder" --skips "$all" "$@"
