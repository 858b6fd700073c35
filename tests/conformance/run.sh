#!/usr/bin/env bash
# run.sh TESSERA FOLDER [options]: `tessera conformance` on a folder of cases, with the skip file beside this script.
# Exit code 77, for "skipped", where the cases are not there.
set -euo pipefail
tessera=$1 folder=$2
shift 2
[[ -d $folder ]] || { echo "skipped: there are no cases in $folder"; exit 77; }
exec "$tessera" conformance "$folder" --skips "$(dirname "$(readlink -f "$0")")/skips.txt" "$@"
