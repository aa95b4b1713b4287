#!/usr/bin/env bash
# Runs the ONNX conformance cases and compares the counts with the recorded ones (tests/conformance.tsv): fewer is a failure.
# Exit code 77 (skipped) where the material, zstd or the GPU is missing.
#   conformance_test.sh INGOT DEVICE SCRATCH
set -u -o pipefail
program=$1 device=$2 scratch=$3
here=$(cd "$(dirname "$0")" && pwd)
material=${INGOT_SHARED:-../shared}/conformance
skip() { echo "skipped: $1"; exit 77; }
[[ -e $material/manifest.tsv ]] || skip "$material is not here"
command -v zstd >/dev/null || skip "zstd is not installed"
[[ $device != cuda* || $("$program" devices) == *cuda:0* ]] || skip "no GPU"

mkdir -p "$scratch"
for set in onnx-backend-tests onnx-fusion-graphs; do
  archive=$material/$set.tar.zst
  if [[ ! $scratch/$set.unpacked -nt $archive ]]; then
    rm -rf "${scratch:?}/$set" && mkdir "$scratch/$set" && zstd -dc "$archive" | tar xf - -C "$scratch/$set" || exit 1
    touch "$scratch/$set.unpacked"
  fi
done

jobs=$(nproc)
"$program" test "$scratch/onnx-backend-tests" --manifest "$material/manifest.tsv" --device "$device" --jobs "$jobs" >"$scratch/onnx-$device.log"
# f16 graphs differ by the rounding of intermediate values: the tolerance is that of f16.
# What passes unfused passes fused; the other way round need not be: a fused kernel keeps in f32 what is rounded between two.
for form in fusion unfused; do
  "$program" test "$scratch/onnx-fusion-graphs" --rtol 1e-2 --atol 1e-3 --device "$device" --jobs "$jobs" $([[ $form == fusion ]] || echo --unfused) >"$scratch/$form-$device.log"
  sed -n 's/^FAIL  *\([^:]*\):.*/\1/p' "$scratch/$form-$device.log" | sort >"$scratch/$form-$device.failed"
done
only_fused=$(comm -23 "$scratch/fusion-$device.failed" "$scratch/unfused-$device.failed")
if [[ -n $only_fused ]]; then
  echo "FAILED: fusion breaks $only_fused"
  differs=1
fi
tail -n 20 "$scratch/onnx-$device.log" | grep ' of '
tail -n 1 "$scratch/fusion-$device.log"

# Cases that need inputs as constants, of which none must be added.
again=$(sed -n 's/^\([0-9]*\) passed only with inputs as constants$/\1/p' "$scratch/onnx-$device.log")
most=$(sed -n "s/^$device\tspecialised\t//p" "$here/conformance.tsv")
# "group   passed of all", and for the fusion graphs "N passed, M failed on DEVICE".
failed=${differs:-0}
while IFS=$'\t' read -r on group wanted; do
  [[ $on == "$device" && $group != specialised ]] || continue
  if [[ $group == fusion ]]; then got=$(sed -n 's/^\([0-9]*\) passed, .*/\1/p' "$scratch/fusion-$device.log" | tail -n 1)
  else got=$(sed -n "s/^$group  *\([0-9]*\) of .*/\1/p" "$scratch/onnx-$device.log"); fi
  if ((${got:-0} < wanted)); then
    echo "FAILED: $group: ${got:-0} cases pass, $wanted are recorded"
    failed=1
  fi
done <"$here/conformance.tsv"
if ((${again:-0} > ${most:-0})); then
  echo "FAILED: ${again:-0} cases need inputs as constants, ${most:-0} are recorded"
  failed=1
fi
exit $failed
