#!/usr/bin/env bash
# promtool.sh <kvc-run> <connector> <model> [options...]: what /metrics serves, judged by promtool
# (Debian package prometheus). Exit code 77: there is no promtool, nothing was checked.
set -euo pipefail
promtool=${KVC_PROMTOOL:-$(command -v promtool || true)}
if [ -z "$promtool" ]; then
  echo "SKIPPED: /metrics was not checked: there is no promtool (Debian package prometheus)"
  exit 77
fi
run=$1 connector=$2 model=$3
shift 3
folder=$(mktemp -d)
trap 'kill -9 $child 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
"$run" --connector "$connector" --model "$model" --trace 'gen:agent?requests=16' \
  --metrics-port 0 --metrics-linger 3600 "$@" >"$folder/out" 2>"$folder/err" &
child=$!
port=
while [ -z "$port" ]; do
  kill -0 "$child" 2>/dev/null || { cat "$folder/err"; exit 1; }
  port=$(sed -n 's|^kvc-run: http://127.0.0.1:\([0-9]*\)/metrics.*|\1|p' "$folder/err")
done
get() {
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  printf 'GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n' >&3
  sed '1,/^\r$/d' <&3 >"$folder/metrics"
  exec 3>&-
}
until get && grep -q '^kvc:run_passes_total 2$' "$folder/metrics"; do :; done
status=0
"$promtool" check metrics <"$folder/metrics" >"$folder/said" 2>&1 || status=$?
cat "$folder/said"
# 3: it would like something else. Names with a colon are vLLM's own, and those beside them.
if [ "$status" -eq 3 ] && ! grep -qv "metric names should not contain ':'$" "$folder/said"; then
  status=0
fi
[ "$status" -eq 0 ] && echo "promtool has read $(grep -c '^# TYPE' "$folder/metrics") metrics"
exit "$status"
