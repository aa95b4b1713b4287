#!/usr/bin/env bash
# One file for many GPUs, made without one: the same bytes from a cold and from a warm store and in whatever order targets are
# named; the weights once; inspect says where it runs and why not elsewhere; the CPU program of the file runs.
#   many_targets_test.sh INGOT
set -u
ingot=$1
model=examples/digits/digits.onnx
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export INGOT_CACHE_DIR=$work/cache
"$ingot" devices | grep -q '^nvrtc:' || { echo "skipped: no NVRTC"; exit 77; }
fail() { echo "FAIL: $*"; exit 1; }

"$ingot" compile $model -o "$work/a.ingot" --target sm_80,sm_86,sm_89,sm_90a,sm_100a,sm_120,cpu >/dev/null || fail "cold"
"$ingot" compile $model -o "$work/b.ingot" --target cpu,sm_120,sm_90a,sm_80,sm_100a,sm_89,sm_86,sm_80 >/dev/null || fail "warm"
cmp "$work/a.ingot" "$work/b.ingot" || fail "other bytes in another order"
# Of fewer targets: what a second cold store shows is the same for each of them.
"$ingot" compile $model -o "$work/warm.ingot" --target sm_90a,cpu >/dev/null || fail "warm, fewer targets"
INGOT_CACHE_DIR=$work/other "$ingot" compile $model -o "$work/c.ingot" --target sm_90a,cpu >/dev/null || fail "cold again"
cmp "$work/warm.ingot" "$work/c.ingot" || fail "other bytes from another store"

report=$("$ingot" inspect "$work/a.ingot") || fail "inspect"
expect() { [[ $report == *"$1"* ]] || fail "inspect lacks '$1': $report"; }
expect "does not run on compute capability 7.5 (T4, RTX 20): all its GPU programs are for newer chips"
expect "runs on compute capability 8.7 (Jetson Orin): sm_86"
expect "runs on compute capability 9.0 (H100, H200): sm_90a"
expect "runs on compute capability 10.3 (B300): ptx_89"
expect "runs on compute capability 12.1 (DGX Spark): sm_120"
expect "for callers that trust the file"
"$ingot" compile $model -o "$work/one.ingot" --target sm_90a >/dev/null
report=$("$ingot" inspect "$work/one.ingot")
expect "does not run on compute capability 10.0 (B200)"
expect "sm_90a code runs on that chip only"
expect "the file has no CPU program"
"$ingot" run "$work/one.ingot" --device cpu 2>"$work/err" && fail "a GPU file ran on the CPU"
grep -q "sm_90a: is for another kind of device" "$work/err" || fail "no clear error: $(cat "$work/err")"

# Seven programs share one copy of the weights.
bytes() { "$ingot" inspect "$1" --json | grep -o '"code_bytes": [0-9]*' | awk '{s += $2} END {print s}'; }
weights=$(($(stat -c %s "$work/a.ingot") - $(bytes "$work/a.ingot")))
single=$(($(stat -c %s "$work/one.ingot") - $(bytes "$work/one.ingot")))
((weights < single + 6 * 50000)) || fail "the weights are stored more than once: $weights against $single"
[[ $("$ingot" run "$work/a.ingot" --device cpu --input image=examples/digits/images/images.npy --labels examples/digits/images/labels.txt) == *"10 of 10 right"* ]] || fail "the CPU program"
echo "one file, seven programs, the same bytes"
