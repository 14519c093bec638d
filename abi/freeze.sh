#!/usr/bin/env bash
# Freezes the line, and compares it with what is frozen. Needs abidw and abidiff (abigail-tools).
#   abi/freeze.sh vX.Y                                 writes abi/frozen/vX.Y from the tree
#   abi/freeze.sh --check vX.Y [include] [scratch]     0: the headers in `include` (default: the
#       tree's), pinned to that minor, are what was frozen; 1: they are not; 2: cannot tell
# What is compared: types and constants (abidiff), the layout text, and, token by token, what the
# preprocessor makes of kvc.h and of the list of calls.
# A version is written once (abi/CHANGES.md).
set -euo pipefail
abi=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cc=${CC:-gcc}

die() { echo "freeze: $*" >&2; exit 2; }

minor_of() {
  case "$1" in
    v1.[0-9] | v1.[1-9][0-9]) echo "${1#v1.}" ;;
    *) die "'$1' is no version: v1.0, v1.1, ..." ;;
  esac
}

# probe <include> <minor> <out.so>: debug info of every public type, without the place of the tree.
# No suppressions, ever: they hide middle insertions and changed signatures too.
probe() {
  "$cc" -std=c11 -g -O0 -fPIC -fvisibility=hidden -shared "-DKVC_TARGET_MINOR=$2" "-I$1" \
    "-I$abi/.." "-ffile-prefix-map=$abi/=abi/" "$abi/abi_probe.c" -o "$3"
}

# layout <include> <minor> <scratch> <out.txt>: without KVC_MINOR, which every minor changes.
layout() {
  "$cc" -std=c11 "-DKVC_TARGET_MINOR=$2" "-I$1" "-I$abi/.." "$abi/tests/layout_dump.c" \
    -o "$3/layout_dump" &&
    "$3/layout_dump" | grep -v '^const KVC_MINOR ' >"$4"
}

# tokens <include> <minor>: kvc.h as C++, whose macros for C++ show, and the calls, with single
# blanks.
tokens() {
  { printf '#include <kvc/kvc.h>\n' | "$cc" -E -P -x c++ -std=c++17 "-DKVC_TARGET_MINOR=$2" "-I$1" -
    "$cc" -E -P -x c "-DKVC_TARGET_MINOR=$2" '-DKVC_SLOT(...)=slot(__VA_ARGS__)' \
      '-DKVC_HOST_SLOT(...)=host_slot(__VA_ARGS__)' '-DKVC_STRUCT(...)=structure(__VA_ARGS__)' \
      "$1/kvc/kvc_calls.def"; } |
    tr -s ' \t\n' '\n\n\n'
}

check() {
  [ $# -le 3 ] || die "--check takes a version and two folders, not '${*:4}'"
  local version=$1 include=${2:-$abi/include} scratch=${3:-} minor bad=0
  local frozen=$abi/frozen/$version
  minor=$(minor_of "$version")
  [ -f "$frozen/kvc.abi" ] || die "there is no $frozen/kvc.abi"
  command -v abidiff >/dev/null || die "abidiff is missing: ./dev setup"
  if [ -z "$scratch" ]; then
    scratch=$(mktemp -d)
    trap "rm -rf '$scratch'" EXIT
  fi
  mkdir -p "$scratch" || die "no scratch folder $scratch"
  [ -f "$include/kvc/kvc.h" ] || die "there is no $include/kvc/kvc.h"
  echo 'int main(void) { return 0; }' | "$cc" -x c - -o "$scratch/compiles" ||
    die "$cc does not compile"
  if grep -n "path='/" "$frozen/kvc.abi"; then
    echo "freeze: $frozen/kvc.abi names a place of the machine that wrote it"
    bad=1
  fi
  if ! probe "$include" "$minor" "$scratch/probe.so"; then
    echo "freeze: a type or constant of $version is gone: abi_probe.c does not compile"
    bad=1
  elif ! abidiff "$frozen/kvc.abi" "$scratch/probe.so" >"$scratch/abidiff.txt" 2>&1; then
    cat "$scratch/abidiff.txt"
    echo "freeze: abidiff: kvc.h pinned to minor $minor is not $version"
    bad=1
  fi
  if ! layout "$include" "$minor" "$scratch" "$scratch/layout.txt" 2>"$scratch/layout.log"; then
    cat "$scratch/layout.log"
    echo "freeze: layout: layout_dump.c does not compile or run with these headers"
    bad=1
  elif ! diff "$frozen/layout.txt" "$scratch/layout.txt"; then
    echo "freeze: layout: sizes, offsets or constants of minor $minor are not those of $version"
    bad=1
  fi
  if ! tokens "$include" "$minor" >"$scratch/tokens.txt" 2>"$scratch/tokens.log"; then
    cat "$scratch/tokens.log"
    echo "freeze: tokens: the preprocessor does not take these headers"
    bad=1
  elif ! tokens "$frozen/include" "$minor" | diff - "$scratch/tokens.txt"; then
    echo "freeze: tokens: a declaration of kvc.h or a line of kvc_calls.def is not that of $version"
    bad=1
  fi
  [ "$bad" -eq 0 ] && return 0
  echo "freeze: $version is released and does not change: new fields and slots go to the end," \
    "behind '#if KVC_TARGET_MINOR >= n'"
  return 1
}

freeze() {
  local version=$1 minor frozen=$abi/frozen/$1 scratch
  minor=$(minor_of "$version")
  command -v abidw >/dev/null || die "abidw is missing: ./dev setup"
  [ "$minor" = "$(sed -n 's/^#define KVC_MINOR \([0-9]*\)u$/\1/p' "$abi/include/kvc/kvc.h")" ] ||
    die "$version is not the minor of abi/include/kvc/kvc.h"
  [ ! -e "$frozen" ] || die "$frozen is there: a release is frozen once"
  scratch=$(mktemp -d)
  trap "rm -rf '$scratch'" EXIT
  probe "$abi/include" "$minor" "$scratch/probe.so"
  abidw --no-corpus-path --no-comp-dir-path --no-show-locs --out-file "$scratch/kvc.abi" \
    "$scratch/probe.so"
  layout "$abi/include" "$minor" "$scratch" "$scratch/layout.txt"
  rm -rf "$frozen"
  mkdir -p "$frozen/include/kvc" "$frozen/samples"
  cp "$scratch/kvc.abi" "$scratch/layout.txt" "$frozen"
  cp "$abi"/include/kvc/{kvc.h,kvc_util.h,kvc_calls.def} "$frozen/include/kvc"
  cp "$abi"/../docs/minimal/{connector.c,host.c,rank.h,role.h,scheduler.h} "$frozen/samples"
  printf '# Written by abi/freeze.sh.\nkvc_frozen(%s %s samples/connector.c samples/host.c)\n' \
    "$version" "$minor" >"$frozen/CMakeLists.txt"
  echo "freeze: wrote $frozen; abi/CMakeLists.txt must name it"
}

case "${1:-}" in
  --check) shift; [ $# -ge 1 ] || die "--check needs a version"; check "$@" ;;
  v*) [ $# -eq 1 ] || die "one version, not '$*'"; freeze "$1" ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
