#!/usr/bin/env bash
# Runs an ingot command with @shared replaced by the folder of test material. Exit code 77 (skipped) where it is missing, where
# NVRTC is (compile for CUDA), or where a GPU is (--device cuda).
set -u
program=$1
shift
shared=${INGOT_SHARED:-../shared}
args=()
for a in "$@"; do
  if [[ $a == @shared/* ]]; then
    a=$shared/${a#@shared/}
    [[ -e $a ]] || { echo "skipped: $a is not here"; exit 77; }
  fi
  args+=("$a")
done
devices=$("$program" devices)
if [[ "$*" == *"--device cuda"* && $devices != *cuda:0* ]]; then
  echo "skipped: no GPU"
  exit 77
fi
if [[ "$*" == *"--target sm_"* && $devices == *"no NVRTC"* ]]; then
  echo "skipped: no NVRTC"
  exit 77
fi
exec "$program" "${args[@]}"
