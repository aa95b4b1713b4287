#!/usr/bin/env bash
# The runtime as a user gets it: installed into a folder of its own, found by CMake and by pkg-config, linked shared and
# static by the examples, and run on engine files. Fails when the library is too large or needs more than it may.
#   installed_runtime_test.sh BUILD_FOLDER INGOT
set -eu
build=$1
ingot=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export INGOT_CACHE_DIR=$work/cache
unset LD_LIBRARY_PATH
fail() { echo "FAIL: $*"; exit 1; }

cmake --install "$build" --component runtime --prefix "$work/ingot" >/dev/null
library=$(find "$work/ingot" -name 'libingot_runtime.so' -print -quit)
size=$(stat -Lc %s "$library")
((size < 5 * 1024 * 1024)) || fail "libingot_runtime.so has $size bytes"
needs=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
for name in $needs; do
  case $name in
    libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | libgcc_s.so.1 | libstdc++.so.6 | ld-linux-x86-64.so.2) ;;
    *) fail "libingot_runtime.so needs $name" ;;
  esac
done
readelf --dyn-syms -W "$library" | grep -q 'ingot_engine_load@@INGOT_1' || fail "symbols are not versioned"
if nm -D --defined-only "$library" | awk '{print $3}' | grep -v -E '^(ingot_|INGOT_1)' | grep -q .; then
  fail "the library shows more than its API"
fi

# A copy of the example sources: nothing of the checkout is near them.
cp -r examples/runtime "$work/example"
cmake -S "$work/example" -B "$work/example/build" -DCMAKE_PREFIX_PATH="$work/ingot" -DCMAKE_BUILD_TYPE=Release >"$work/log" 2>&1 || { cat "$work/log"; fail "find_package(Ingot)"; }
cmake --build "$work/example/build" >"$work/log" 2>&1 || { cat "$work/log"; fail "the examples do not build"; }
pc=$(dirname "$(find "$work/ingot" -name ingot_runtime.pc -print -quit)")
export PKG_CONFIG_PATH=$pc
if command -v pkg-config >/dev/null; then
  cc "$work/example/run_engine.c" -o "$work/by_pkg_config" $(pkg-config --cflags --libs ingot_runtime) -Wl,-rpath,"$(dirname "$library")"
else
  ln -s "$work/example/build/run_engine" "$work/by_pkg_config"
fi

"$ingot" compile examples/digits/digits.onnx -o "$work/digits.ingot" --target x86-64-v2,cpu >/dev/null
for program in "$work/example/build/run_engine" "$work/example/build/run_engine_static" "$work/by_pkg_config"; do
  out=$("$program" "$work/digits.ingot" examples/digits/images/images.npy cpu) || fail "$program: $out"
  [[ $out == *": 0 1 2 3 4 5 6 7 8 9" ]] || fail "$program: $out"
done
out=$("$work/example/build/serve_engine" "$work/digits.ingot" cpu:1 cpu:1) || fail "$out"
[[ $out == *"100 requests of 4 threads, 0 wrong"* ]] || fail "$out"
"$work/example/build/run_engine" "$work/digits.ingot" examples/digits/images/images.npy cuda:7 2>"$work/err" && fail "there is no GPU 7"
head -c 3000 "$work/digits.ingot" >"$work/cut.ingot"
"$work/example/build/run_engine" "$work/cut.ingot" examples/digits/images/images.npy cpu 2>"$work/err" && fail "a cut file was loaded"
grep -q "cut off" "$work/err" || fail "no clear error: $(cat "$work/err")"
echo "libingot_runtime.so: $size bytes, needs $needs"
