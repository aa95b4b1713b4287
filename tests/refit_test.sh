#!/usr/bin/env bash
# Refit gives the very file that compiling the new model gives, refuses weights that need other kernels or do not fit, and
# runs as fast: its kernels are the old ones.
#   refit_test.sh INGOT PYTHON
set -u
ingot=$1
python=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export INGOT_CACHE_DIR=$work/cache
"$python" -c "import onnx, numpy" 2>/dev/null || { echo "skipped: no Python with onnx"; exit 77; }
fail() { echo "FAIL: $*"; exit 1; }

# A convolution with batch normalisation, a product with a scale, twice: the second model has other weights everywhere. The
# third differs in a single factor, which is part of a kernel; the fourth has a weight of another shape.
"$python" - "$work" <<'PY' || exit 1
import sys, numpy as np, onnx
from onnx import helper as h, numpy_helper as nh, TensorProto as T
def model(path, seed, factor=0.5, width=96):
    rng = np.random.default_rng(seed)
    w = lambda name, *s: nh.from_array((rng.standard_normal(s) * 0.1 + (1 if name == "var" else 0)).astype(np.float32) ** (2 if name == "var" else 1), name)
    init = [w("cw", 96, 3, 3, 3), w("cb", 96), w("scale", 96), w("shift", 96), w("mean", 96), w("var", 96), w("m", 96, width), w("bias", width),
            nh.from_array(np.float32(factor), "factor"), nh.from_array(np.array([0, -1], np.int64), "flat")]
    nodes = [h.make_node("Conv", ["x", "cw", "cb"], ["c"], pads=[1, 1, 1, 1]),
             h.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
             h.make_node("Relu", ["n"], ["r"]), h.make_node("GlobalAveragePool", ["r"], ["g"]),
             h.make_node("Reshape", ["g", "flat"], ["f"]), h.make_node("MatMul", ["f", "m"], ["p"]),
             h.make_node("Add", ["p", "bias"], ["a"]), h.make_node("Mul", ["a", "factor"], ["s"]), h.make_node("Sigmoid", ["s"], ["y"])]
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, ["N", 3, 16, 16])], [h.make_tensor_value_info("y", T.FLOAT, ["N", width])], init)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
    return {i.name: nh.to_array(i) for i in init}
d = sys.argv[1]
import os
for n, args in {"old": (1,), "new": (2,), "factor": (2, 0.25), "wide": (2, 0.5, 128)}.items():
    os.makedirs(f"{d}/{n}")
    weights = model(f"{d}/{n}/model.onnx", *args)
    np.savez(f"{d}/{n}.npz", **{k: v for k, v in weights.items() if v.nbytes > 256})
PY
targets="cpu,x86-64-v3,${3:-source}"
for n in old new; do "$ingot" compile "$work/$n/model.onnx" -o "$work/$n.ingot" --target "$targets" >/dev/null || fail "compile $n"; done
INGOT_ASSERT_CACHED=1 "$ingot" refit "$work/old.ingot" --weights "$work/new/model.onnx" -o "$work/refit.ingot" || fail "refit"
cmp "$work/refit.ingot" "$work/new.ingot" || fail "not the file that compiling gives"
cmp -s "$work/old.ingot" "$work/new.ingot" && fail "the weights made no difference"
"$ingot" refit "$work/old.ingot" --weights "$work/new.npz" -o "$work/npz.ingot" || fail "refit from .npz"
for f in new npz; do
  "$ingot" run "$work/$f.ingot" --device cpu --batch 5 --output-dir "$work/out_$f" >/dev/null || fail "run $f"
done
cmp "$work/out_new/y.npy" "$work/out_npz/y.npy" || fail "other results"
"$ingot" refit "$work/old.ingot" --weights "$work/wide/model.onnx" -o "$work/x.ingot" 2>"$work/err" && fail "another graph was taken"
grep -q "differs from the compiled one" "$work/err" || fail "no clear error: $(cat "$work/err")"
"$ingot" refit "$work/old.ingot" --weights "$work/factor/model.onnx" -o "$work/x.ingot" 2>"$work/err" && fail "a changed factor was ignored"
"$ingot" refit "$work/old.ingot" --weights "$work/wide.npz" -o "$work/x.ingot" 2>"$work/err" && fail "a weight of another shape was taken"
grep -q "the model has" "$work/err" || fail "no clear error: $(cat "$work/err")"
"$python" -c "
import numpy as np, sys
w = dict(np.load('$work/new.npz')); w.pop('cw'); np.savez('$work/less.npz', **w); w['cw'] = np.zeros((96, 3, 3, 3), np.float32); w['more'] = w['cw']; np.savez('$work/more.npz', **w)"
"$ingot" refit "$work/old.ingot" --weights "$work/less.npz" -o "$work/x.ingot" 2>"$work/err" && fail "a missing weight was not missed"
"$ingot" refit "$work/old.ingot" --weights "$work/more.npz" -o "$work/x.ingot" 2>"$work/err" && fail "an unknown weight was taken"
"$ingot" compile "$work/old/model.onnx" -o "$work/bare.ingot" --no-refit >/dev/null
"$ingot" refit "$work/bare.ingot" --weights "$work/new.npz" -o "$work/x.ingot" 2>"$work/err" && fail "a file without the graph was refitted"
[[ -e $work/x.ingot ]] && fail "a failed refit left a file"
echo "refit equals a fresh compilation, bit for bit"
