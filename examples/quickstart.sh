#!/usr/bin/env bash
# From a fresh checkout to predictions: builds Ingot, compiles the digit model of examples/digits into one file, shows
# what was fused, and runs it on ten images, on a GPU if there is one.
#   bash examples/quickstart.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
digits=examples/digits
out=build/quickstart
file=$out/digits.ingot
ingot=build/release/bin/ingot
mkdir -p "$out"

step() { printf '\n[%s/6] %s\n' "$1" "$2"; }

# Runs a command with its output in a log, of which a failure shows the end.
quietly() {
  local log=$1
  shift
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 40 "$log" >&2
    echo "quickstart: failed: $* (whole log: $log)" >&2
    exit 1
  fi
}

step 1 "packages (a minute or two the first time)"
bash scripts/install_packages.sh --build

step 2 "building Ingot (several minutes the first time on two cores, a second afterwards)"
quietly "$out/configure.log" cmake --preset release
cmake --build --preset release --target ingot

step 3 "choosing a device"
"$ingot" devices | tee "$out/devices.txt"
device=cpu
target=cpu
if grep -q '\bcuda:0\b' "$out/devices.txt" && sm=$(grep -o -m1 '\bsm_[0-9]\+a\?' "$out/devices.txt"); then
  device=cuda:0
  target=${sm%%$'\n'*}
fi
echo "using $device"

step 4 "compiling $digits/digits.onnx for $target"
if ! "$ingot" compile "$digits/digits.onnx" -o "$file" --target "$target" --explain; then
  [[ $device != cpu ]] || exit 1
  echo "quickstart: compiling for the GPU failed, see above; going on with the CPU" >&2
  device=cpu
  "$ingot" compile "$digits/digits.onnx" -o "$file" --target cpu --explain
fi

step 5 "what is in the file: inputs, outputs and the kernels after fusion"
"$ingot" inspect "$file"

step 6 "ten handwritten digits that the network has not seen in training, and the time of each kernel"
"$ingot" run "$file" --device "$device" --input "image=$digits/images/images.npy" --labels "$digits/images/labels.txt" \
  --profile

cat <<END

Done in $SECONDS s. The compiled model is $PWD/$file ($(stat -c %s "$file") bytes).
To look at the images: $digits/images/digit_*.pgm

What to try next ($ingot is the program):
  ingot compile $digits/digits.onnx -o $out/gpu.ingot --target sm_90a --dump $out/dump
                                       the CUDA source of every kernel, without a GPU (NVRTC is needed)
  ingot inspect $digits/digits.onnx --explain --kernels   what is fused, and what is not
  ingot check $digits/digits.onnx   fused against unfused
  ingot bench $digits/digits.onnx   latency, throughput; --profile: time of each kernel
  ingot test $digits                the model's own test data
  ingot run YOUR_MODEL.onnx                 a model of yours, on random input
END
