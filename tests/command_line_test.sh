#!/usr/bin/env bash
# Bad input gives one clear error on stderr, exit code 2 and no file; good input works end to end through an engine file.
set -u
ingot=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export INGOT_CACHE_DIR=$work/cache
model=examples/digits/digits.onnx
images=examples/digits/images/images.npy
bad=0

# expect_error TEXT command…: exit code 2 and TEXT in the message
expect_error() {
  local text=$1 out code
  shift
  out=$("$@" 2>&1 >/dev/null)
  code=$?
  if [[ $code -ne 2 || $out != *"$text"* ]]; then
    echo "FAIL: $*: exit $code, wanted 2 and '$text'; got: $out"
    bad=1
  fi
}
expect() {
  local text=$1 out
  shift
  out=$("$@" 2>&1) || { echo "FAIL: $*: $out"; bad=1; return; }
  [[ $out == *"$text"* ]] || { echo "FAIL: $*: no '$text' in: $out"; bad=1; }
}

echo hello >"$work/not.onnx"
: >"$work/empty.onnx"
head -c 20000 "$model" >"$work/cut.onnx"
expect_error "nothing.onnx" "$ingot" run "$work/nothing.onnx" --device cpu
expect_error "not" "$ingot" compile "$work/not.onnx" -o "$work/x.ingot"
expect_error "empty" "$ingot" compile "$work/empty.onnx" -o "$work/x.ingot"
expect_error "error" "$ingot" compile "$work/cut.onnx" -o "$work/x.ingot"
expect_error 'no input "pixels"; its inputs are: image' "$ingot" run "$model" --device cpu --input pixels=$images
expect_error "unknown target sm_42" "$ingot" compile "$model" -o "$work/x.ingot" --target sm_42
expect_error "no pass named frobnicate" "$ingot" opt "$model" --skip frobnicate
expect_error "unknown device" "$ingot" run "$model" --device tpu
[[ -e $work/x.ingot ]] && { echo "FAIL: a failed compilation left a file"; bad=1; }

expect "9 kernels after fusion" "$ingot" compile "$model" -o "$work/digits.ingot"
expect "10 of 10 right" "$ingot" run "$work/digits.ingot" --device cpu --input image=$images --labels examples/digits/images/labels.txt
cp "$work/digits.ingot" "$work/again.ingot"
expect "9 kernels" env INGOT_ASSERT_CACHED=1 "$ingot" compile "$model" -o "$work/digits.ingot"
cmp -s "$work/digits.ingot" "$work/again.ingot" || { echo "FAIL: the same input gives other bytes"; bad=1; }
head -c 5000 "$work/digits.ingot" >"$work/cut.ingot"
expect_error "cut" "$ingot" run "$work/cut.ingot" --device cpu
expect "equals the unfused one" "$ingot" check "$model" --device cpu
expect '"kernels": 9' "$ingot" inspect "$model" --json
expect "page.html" "$ingot" inspect "$model" --html "$work/page.html"
[[ -s $work/page.html ]] || { echo "FAIL: inspect --html wrote no page"; bad=1; }
expect_error "cannot be written" "$ingot" inspect "$model" --html "$work/none/page.html"
expect_error "an .ingot file has no graph" "$ingot" inspect "$work/digits.ingot" --html "$work/page.html"
expect "the reader is a product" "$ingot" inspect "$model" --explain
if command -v python3 >/dev/null; then
  PYTHONDONTWRITEBYTECODE=1 python3 -c "import sys; sys.path.insert(0, 'tests/page'); import onnx_file; open(sys.argv[1], 'wb').write(onnx_file.course_model())" "$work/course.onnx"
  expect 'If "fork": the host reads condition' "$ingot" inspect "$work/course.onnx"
  expect "its elements are sizes" "$ingot" inspect "$work/course.onnx" --explain
  expect '"kind": "if"' "$ingot" inspect "$work/course.onnx" --json
fi
expect "entries" "$ingot" cache stats
expect "0 damaged" "$ingot" cache verify
exit $bad
