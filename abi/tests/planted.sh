#!/usr/bin/env bash
# That the check of frozen headers can fail: copies of the tree's headers with one change each must
# be refused by abidiff, by the layout, or by both as said, and harmless changes must pass.
# usage: planted.sh <abi folder> <version> <scratch>
set -u
abi=$1 version=$2 scratch=$3
bad=0
runs=0

# planted <what> <pass|refuse> <words that the check says, | between them> <sed expression..>
planted() {
  local what=$1 want=$2 words=$3 word got=pass copy=$scratch/include file=${list:-kvc.h}
  shift 3
  rm -rf "$copy"
  mkdir -p "$scratch"
  cp -r "$abi/include" "$copy"
  sed -i "$@" "$copy/kvc/$file"
  runs=$((runs + 1))
  if cmp -s "$abi/include/kvc/$file" "$copy/kvc/$file"; then
    echo "FAILED: $what: nothing was planted"
    bad=$((bad + 1))
    return
  fi
  "$abi/freeze.sh" --check "$version" "$copy" "$scratch/check" >"$scratch/said" 2>&1
  case $? in
    0) ;;
    1) got=refuse ;;
    *) got="could not tell" ;;
  esac
  while [ -n "$words" ]; do
    word=${words%%|*}
    words=${words#"$word"}
    words=${words#|}
    grep -q "freeze: $word" "$scratch/said" || got="$got without '$word'"
  done
  [ "$got" = "$want" ] && return
  echo "FAILED: $what: expected $want, got $got"
  head -n 30 "$scratch/said"
  bad=$((bad + 1))
}

slot='  kvc_status (*trim)(kvc_sched *s, uint64_t bytes) KVC_NOTHROW;'
planted "a comment" pass "" -e 's/Major 1, minor 0/Major 1, minor zero/'
planted "a slot behind KVC_TARGET_MINOR" pass "" \
  -e "s/^} kvc_plugin_api;/#if KVC_TARGET_MINOR >= 1\n$slot\n#endif\n&/" \
  -e 's/KVC_MINOR 0u/KVC_MINOR 1u/'
planted "a slot at the end" refuse "abidiff" -e "s/^} kvc_plugin_api;/$slot\n&/"
planted "a slot in the middle" refuse "abidiff|layout" \
  -e "s/^  kvc_status (\*reset)/$slot\n&/"
planted "two slots swapped" refuse "abidiff|layout" \
  -e 's/(\*submit_loads)/(*XX)/; s/(\*submit_stores)/(*submit_loads)/; s/(\*XX)/(*submit_stores)/'
planted "another signature" refuse "abidiff" \
  -e '/(\*lookup_cancel)/s/uint64_t request/uint32_t request/'
planted "a nested struct that grew" refuse "abidiff|layout" \
  -e 's/^} kvc_block;/  uint64_t more;\n&/'
planted "a field of another type" refuse "abidiff" \
  -e '/^typedef struct kvc_verdict/,/^} kvc_verdict/s/uint64_t request;/int64_t request;/'
planted "a status with another value" refuse "abidiff|layout" -e 's/KVC_E_IO = -6/KVC_E_IO = -66/'
planted "a flag with another bit" refuse "abidiff|layout" \
  -e 's/\(#define KVC_CAP_STATES (UINT64_C(1) << \)2/\19/'
planted "a status that is gone" refuse "a type or constant" -e '/KVC_E_CANCELLED = -7/d'

planted "another entry" refuse "tokens" \
  -e '/kvc_plugin_entry_v1(/s/uint32_t host_minor/uint64_t host_minor/'
planted "functions that may throw" refuse "tokens" -e 's/^\(#define KVC_NOTHROW\).*/\1/'
list=kvc_calls.def  # from here on
planted "a slot that becomes optional" refuse "tokens" -e '/^KVC_SLOT(lookup,/s/ req/ opt/'
planted "a slot of another role" refuse "tokens" -e '/^KVC_SLOT(lookup,/s/sched, sched/sched, any/'

# tells <status> <words> <argument..>: what freeze.sh answers when it is called wrongly.
tells() {
  local want=$1 words=$2 got=0
  shift 2
  "$abi/freeze.sh" "$@" >"$scratch/said" 2>&1 || got=$?
  runs=$((runs + 1))
  if [ "$got" -ne "$want" ] || ! grep -q -- "$words" "$scratch/said"; then
    echo "FAILED: freeze.sh $*: status $got, expected $want and '$words'"
    head -n 5 "$scratch/said"
    bad=$((bad + 1))
  fi
}
tells 2 "is no version" v1.00
tells 2 "is no version" v1.07
tells 2 "is not the minor" v1.5
tells 2 "is frozen once" "$version"
tells 2 "takes a version and two folders" --check "$version" "$abi/include" "$scratch/check" more
tells 2 "there is no" --check "$version" "$scratch/none" "$scratch/check"
CC=$scratch/none tells 2 "does not compile" --check "$version" "$abi/include" "$scratch/check"

echo "planted: $runs headers, $bad not as expected"
[ "$bad" -eq 0 ]
