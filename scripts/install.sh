#!/usr/bin/env bash
# Installs the packages of scripts/packages.txt that are missing (Debian 12; as root or with sudo).
# usage: install.sh [GROUP ...]   groups are the [names] of packages.txt; all of them by default
set -euo pipefail
list=$(dirname "$(readlink -f "$0")")/packages.txt

die() { echo "install.sh: $*" >&2; exit 1; }

# Names of the missing packages of the wanted groups, one a line.
missing() {
  local group="" name unless installed
  installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' 2>/dev/null | sed -n 's/^ii *//p')
  while read -r name unless; do
    case "$name" in
      "") ;;
      "["*"]") group=${name//[\[\]]/} ;;
      *)
        [[ $# -eq 0 || " $* " == *" $group "* ]] || continue
        [[ $unless == unless=* ]] && command -v "${unless#unless=}" >/dev/null && continue
        grep -qxF -- "$name" <<<"$installed" || echo "$name"
        ;;
    esac
  done < <(sed 's/#.*//' "$list")
}

for group in "$@"; do
  grep -qxF "[$group]" "$list" || die "packages.txt has no group '$group'"
done
command -v dpkg-query >/dev/null || die "this machine has no dpkg; install the equivalents of $list by hand"
mapfile -t packages < <(missing "$@")
[[ ${#packages[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || die "not root and no sudo; missing packages: ${packages[*]}"
  as_root=(sudo)
fi
echo "installing ${packages[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 "$@" >"$log" 2>&1; }
apt update -qq || { tail -n 5 "$log" >&2; die "apt-get update failed (no network?); missing packages: ${packages[*]}"; }
apt install -y -qq --no-install-recommends "${packages[@]}" ||
  { tail -n 15 "$log" >&2; die "apt-get could not install: ${packages[*]}"; }
