#!/bin/bash
# tune_test.sh INGOT INGOT_EMULATED: --tune from the command line. Without a GPU it says so; on the emulator, whose times mean
# nothing but whose process and store are the real ones, a second compilation measures nothing and gives the same file.
set -eu
ingot=$1 emulated=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export INGOT_CACHE_DIR=$out/store TMPDIR=$out/tmp
mkdir "$out/tmp"
fail() { echo "$1"; exit 1; }

model=examples/digits/digits.onnx
if ! "$ingot" devices | grep -q '^cuda:0'; then
  ! "$ingot" compile $model -o "$out/no.ingot" --target sm_90a --tune 5 2> "$out/error" || fail "--tune without a GPU succeeded"
  grep -q "there is none" "$out/error" || fail "no clear error without a GPU: $(cat "$out/error")"
fi
tune() { "$emulated" compile $model -o "$1" --target source --no-ptx --tune-device emulator --tune-at N=2 "${@:2}"; }
! "$emulated" compile $model -o "$out/no.ingot" --target sm_80 --tune 5 --tune-device emulator 2> "$out/error" || fail "tuned for another target"
grep -q "the targets are sm_80" "$out/error" || fail "$(cat "$out/error")"
! tune "$out/no.ingot" 2> "$out/error" || fail "--tune-at without --tune succeeded"
! tune "$out/no.ingot" --tune 5 --tune-at N=none 2> "$out/error" || fail "a size that is no number"

tune "$out/first.ingot" --tune 60 > "$out/first.txt"
grep -q "plans by measurement:" "$out/first.txt" || fail "nothing was measured: $(cat "$out/first.txt")"
tune "$out/second.ingot" --tune 60 > "$out/second.txt"
cmp "$out/first.ingot" "$out/second.ingot" || fail "the store gives another file"
measured=$(sed -n 's/^ *\([0-9]*\) plans by measurement.*/\1/p' "$out/first.txt")
grep -q "$measured plans by measurement, $measured of them from the store" "$out/second.txt" || fail "measured twice: $(cat "$out/second.txt")"
tune "$out/third.ingot" --tune 0 > "$out/third.txt"
cmp "$out/first.ingot" "$out/third.ingot" || fail "--tune 0 does not take what the store has"
"$ingot" inspect "$out/first.ingot" | grep -q "plans by measurement, for source" || fail "inspect says nothing of measurements"
"$ingot" inspect "$out/first.ingot" --json | grep -q '"default_us"' || fail "inspect --json says nothing of measurements"
! ls "$out/tmp" | grep -v emulator || fail "files are left"
echo "$measured plans measured"
