#!/usr/bin/env bash
# Compiles a model for the GPU of this machine and its CPU, and runs gpu_session_test on the file.
#   gpu_session_test.sh INGOT GPU_SESSION_TEST [MODEL.onnx]
set -u
target=$("$1" devices | sed -n 's/^cuda:0:.* \(sm_[0-9a-z]*\),.*/\1/p')
[[ -n $target ]] || { echo "skipped: no GPU"; exit 77; }
file=$(mktemp --suffix .ingot)
trap 'rm -f "$file"' EXIT
"$1" compile "${3:-examples/digits/digits.onnx}" -o "$file" --target "$target,cpu" || exit 1
"$2" "$file"
