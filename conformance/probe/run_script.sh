#!/usr/bin/env bash
# Runs kvc-run over the probe with one script and over none, and compares: outputs are the same
# (KVC-H-062), no byte is wrong, no finding, the script did something, and the end is as told.
# usage: run_script.sh <bin> <lib> <model.toml> <scratch> <end> <TOML text> [kvc-run option..]
# end: right     exit code 0
#      given_up  exit code 1: the engine ran on without the connector (KVC-H-065)
#      refused   the connector did not open
set -u
bin=$1 lib=$2 model=$3 scratch=$4 want=$5 script=$6
shift 6
trace='gen:agent?requests=24&steps=6&system_tokens=1500&output_tokens=40'
rm -rf "$scratch"
mkdir -p "$scratch"
printf '[probe]\nfindings = "%s/findings"\n%b\n' "$scratch" "$script" >"$scratch/script.toml"
bad=0
fail() { echo "FAILED: $*"; bad=1; }

run() {  # run <name> <connector option..>
  local name=$1
  shift
  "$bin/kvc-run" --model "$model" --trace "$trace" "$@" \
    >"$scratch/$name.out" 2>"$scratch/$name.err"
}
digests() { grep -o 'output digest.*' "$scratch/$1.out"; }

run none --connector none || fail "the run without connector"
run probe --connector "$lib/libkvc_probe.so" --connector-config "$scratch/script.toml" "$@"
code=$?
cat "$scratch/script.toml" "$scratch/probe.out" "$scratch/probe.err"
if [ "$want" = refused ]; then
  [ "$code" -eq 2 ] || [ "$code" -eq 1 ] || fail "exit code $code of a connector that does not open"
  [ -s "$scratch/probe.err" ] || fail "no text says why"
  exit "$bad"
fi
case "$want:$code" in
  right:0 | given_up:1) ;;
  *) fail "exit code $code, expected: $want" ;;
esac
if [ "$want" = given_up ] && ! grep -q 'the connector was given up' "$scratch/probe.err"; then
  fail "no text says that the connector was given up"
fi
[ -n "$(digests probe)" ] && [ "$(digests probe)" = "$(digests none)" ] || fail "other outputs"
grep -q 'mismatched blocks  *0  *0$' "$scratch/probe.out" || fail "wrong bytes"
cat "$scratch"/findings*
grep -hv '^acted\|^findings' "$scratch"/findings* && fail "findings"
case "$script" in
  *none*) ;;
  *) grep -q '^acted [1-9]' "$scratch"/findings* || fail "the script did nothing" ;;
esac
exit "$bad"
