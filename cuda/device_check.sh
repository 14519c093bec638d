#!/usr/bin/env bash
# On a machine with a GPU: builds the copy engine with its kernel, checks bytes and order of every
# way of copying against the host backend, measures each way from 4 KiB to 4 MiB beside one copy of
# everything, and writes JSON. At most 4 minutes after the build.
#
#   cuda/device_check.sh [OUT.json] [options of kvc-device-check...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=build/device_check.json
case "${1:-}" in
  '' | -*) ;;
  *)
    out=$1
    shift
    ;;
esac
./dev setup --cuda
./dev build cuda kvc-device-check
mkdir -p "$(dirname "$out")"
timeout 240 build/cuda/bin/kvc-device-check "$@" >"$out" || {
  status=$?
  cat "$out"
  echo "device_check.sh: kvc-device-check ended with status $status" >&2
  exit "$status"
}
cat "$out"
