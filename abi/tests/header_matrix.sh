#!/usr/bin/env bash
# The headers under every language version and both compilers, included twice, with the flags of the
# ABI rules: warnings are errors, padding too. A compiler that is missing is a failure.
# usage: header_matrix.sh <abi/include> <scratch folder>
set -u
include=$1
scratch=$2
mkdir -p "$scratch"

flags=(-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wpadded -Wshadow -Wundef -Werror
       -fsyntax-only "-I$include")
hpp_flags=(-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef
           -Wnon-virtual-dtor -Werror -fsyntax-only "-I$include")
c_flags=(-Wc++-compat -Wstrict-prototypes)
bad=0
runs=0

expect() {  # expect pass|fail <what> <command...>
  local want=$1 what=$2 got=pass
  shift 2
  "$@" >"$scratch/log" 2>&1 || got=fail
  runs=$((runs + 1))
  if [ "$got" != "$want" ]; then
    bad=$((bad + 1))
    echo "FAILED: $what should $want"
    head -n 20 "$scratch/log"
  fi
}

both='#include <kvc/kvc.h>
#include <kvc/kvc.h>
#include <kvc/kvc_util.h>
#include <kvc/kvc_util.h>
#include <kvc/kvc_fault.h>
#include <kvc/kvc_fault.h>
#include <kvc/kvc_retention.h>
#include <kvc/kvc_retention.h>
#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_hints.h>
#include <kvc/kvc_hints.h>
KVC_ASSERT(sizeof(kvc_test_api) % 8 == 0);
#define KVC_STRUCT(type, bytes) KVC_ASSERT(sizeof(type) == bytes);
#include <kvc/kvc_calls.def>
'
printf '%sint kvc_matrix_unit;\n' "$both" >"$scratch/twice.c"
printf '%s' "$both" >"$scratch/twice.cc"
printf '#include <kvc/kvc.h>\n' >"$scratch/one_line.c"
printf '#include <kvc/kvc.hpp>\n#include <kvc/kvc.hpp>\n' >"$scratch/twice_hpp.cc"
# clang checks the padding of a struct only where its size is asked for, hence the asserts above.
# Controls: each must be refused, or the matrix proves nothing.
printf '%s%s\n' "$both" 'typedef struct padded { uint64_t a; uint32_t b; } padded;
int u = (int)sizeof(padded);' >"$scratch/padded.c"
printf '%sint old();\n' "$both" >"$scratch/prototype.c"
printf '%sint *implicit(void *p) { return p; }\n' "$both" >"$scratch/compat.c"
printf '%s%s\n' "$both" 'kvc_status may_throw(kvc_description *);
void set(kvc_plugin_api *t) { t->describe = may_throw; }' >"$scratch/may_throw.cc"

for compiler in gcc:g++ clang:clang++; do
  cc=${compiler%%:*}
  cxx=${compiler##*:}
  for tool in "$cc" "$cxx"; do
    command -v "$tool" >/dev/null || { echo "FAILED: $tool is not installed"; exit 1; }
  done
  for std in c11 c17; do
    for unit in twice one_line; do
      expect pass "$cc $std $unit" "$cc" "-std=$std" "${flags[@]}" "${c_flags[@]}" \
        "$scratch/$unit.c"
    done
    expect fail "$cc $std padded struct" "$cc" "-std=$std" "${flags[@]}" "${c_flags[@]}" \
      "$scratch/padded.c"
    expect fail "$cc $std old prototype" "$cc" "-std=$std" "${flags[@]}" "${c_flags[@]}" \
      "$scratch/prototype.c"
  done
  for std in c++11 c++14 c++17 c++20; do
    expect pass "$cxx $std" "$cxx" "-std=$std" "${flags[@]}" "$scratch/twice.cc"
  done
  for std in c++17 c++20; do
    expect pass "$cxx $std kvc.hpp" "$cxx" "-std=$std" "${hpp_flags[@]}" "$scratch/twice_hpp.cc"
    expect fail "$cxx $std slot that may throw" "$cxx" "-std=$std" "${flags[@]}" \
      "$scratch/may_throw.cc"
  done
done
expect fail "gcc implicit conversion" gcc -std=c11 "${flags[@]}" "${c_flags[@]}" "$scratch/compat.c"

# A surface pinned to an older minor is the same header.
expect pass "pinned to minor 0" gcc -std=c11 -DKVC_TARGET_MINOR=0 "${flags[@]}" "$scratch/twice.c"

echo "header matrix: $runs compilations, $bad not as expected"
[ "$bad" -eq 0 ]
