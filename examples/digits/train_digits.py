"""Trains the digit classifier of this folder and writes digits.onnx, images/ and test_data_set_0/.

A small residual network (Conv, BatchNormalization, ReLU, Add, MaxPool, GlobalAveragePool, Gemm) on the 8x8 handwritten
digits that come with scikit-learn. BatchNormalization stays a node of its own in the file, so that the compiler has
something to fold. Nothing is downloaded; the seed is fixed.

    pip install jax numpy scikit-learn onnx onnxruntime
    python examples/digits/train_digits.py
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 2024
EPOCHS = 40
BATCH = 64
PEAK_RATE = 4e-3
WEIGHT_DECAY = 1e-4
LABEL_SMOOTHING = 0.05
BN_EPSILON = 1e-5
BN_MOMENTUM = 0.9
REQUIRED_ACCURACY = 0.975
OPSET = 17

# name, input channels, output channels, kernel size. Every convolution is followed by a BatchNormalization.
CONVOLUTIONS = [
    ("stem", 1, 16, 3),
    ("block1.conv1", 16, 16, 3),
    ("block1.conv2", 16, 16, 3),
    ("block2.conv1", 16, 32, 3),
    ("block2.conv2", 32, 32, 3),
    ("block2.skip", 16, 32, 1),
]
CLASSES = 10


def load_data():
    """Images f32[n,1,8,8] in [0,1] and labels, split 80/20 with every digit equally represented."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    return train_test_split(images, digits.target, test_size=0.2, random_state=SEED, stratify=digits.target)


def init_model(rng):
    """Returns (trained parameters, running statistics), each a flat dict from name to array."""
    params, stats = {}, {}
    for name, cin, cout, k in CONVOLUTIONS:
        scale = np.sqrt(2.0 / (cin * k * k))
        params[f"{name}.weight"] = rng.normal(0.0, scale, (cout, cin, k, k)).astype(np.float32)
        params[f"{name}.bn.scale"] = np.ones(cout, np.float32)
        params[f"{name}.bn.bias"] = np.zeros(cout, np.float32)
        stats[f"{name}.bn.mean"] = np.zeros(cout, np.float32)
        stats[f"{name}.bn.var"] = np.ones(cout, np.float32)
    width = CONVOLUTIONS[-1][2]
    params["head.weight"] = rng.normal(0.0, np.sqrt(1.0 / width), (CLASSES, width)).astype(np.float32)
    params["head.bias"] = np.zeros(CLASSES, np.float32)
    return params, stats


def conv_bn(x, name, params, stats, training):
    """Convolution and batch normalisation. Returns the result and the updated running statistics."""
    y = jax.lax.conv_general_dilated(x, params[f"{name}.weight"], (1, 1), "SAME")
    running_mean, running_var = stats[f"{name}.bn.mean"], stats[f"{name}.bn.var"]
    new = {}
    if training:
        mean, var = y.mean((0, 2, 3)), y.var((0, 2, 3))
        new[f"{name}.bn.mean"] = BN_MOMENTUM * running_mean + (1 - BN_MOMENTUM) * mean
        new[f"{name}.bn.var"] = BN_MOMENTUM * running_var + (1 - BN_MOMENTUM) * var
    else:
        mean, var = running_mean, running_var
    per_channel = lambda v: v[None, :, None, None]
    y = (y - per_channel(mean)) * per_channel(jax.lax.rsqrt(var + BN_EPSILON) * params[f"{name}.bn.scale"])
    return y + per_channel(params[f"{name}.bn.bias"]), new


def forward(params, stats, x, training):
    """Logits f32[n,10] and the running statistics after this batch."""
    updated = dict(stats)

    def layer(value, name):
        y, new = conv_bn(value, name, params, stats, training)
        updated.update(new)
        return y

    x = jax.nn.relu(layer(x, "stem"))
    y = jax.nn.relu(layer(x, "block1.conv1"))
    x = jax.nn.relu(layer(y, "block1.conv2") + x)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    y = jax.nn.relu(layer(x, "block2.conv1"))
    x = jax.nn.relu(layer(y, "block2.conv2") + layer(x, "block2.skip"))
    x = x.mean((2, 3))
    return x @ params["head.weight"].T + params["head.bias"], updated


def loss_of(params, stats, x, labels):
    logits, updated = forward(params, stats, x, training=True)
    target = jax.nn.one_hot(labels, CLASSES) * (1 - LABEL_SMOOTHING) + LABEL_SMOOTHING / CLASSES
    return -(target * jax.nn.log_softmax(logits)).sum(1).mean(), updated


@jax.jit
def train_step(params, stats, first, second, step, rate, x, labels):
    """One AdamW step. Weight decay applies to weights only, not to biases or to the normalisation's parameters."""
    (loss, stats), grads = jax.value_and_grad(loss_of, has_aux=True)(params, stats, x, labels)
    tree_map = jax.tree_util.tree_map
    first = tree_map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
    c1, c2 = 1 - 0.9**step, 1 - 0.999**step
    params = {
        k: p - rate * ((first[k] / c1) / (jnp.sqrt(second[k] / c2) + 1e-8) + (WEIGHT_DECAY * p if p.ndim > 1 else 0.0))
        for k, p in params.items()
    }
    return params, stats, first, second, loss


def train(images, labels):
    rng = np.random.default_rng(SEED)
    params, stats = init_model(rng)
    first = {k: np.zeros_like(v) for k, v in params.items()}
    second = {k: np.zeros_like(v) for k, v in params.items()}
    batches = len(images) // BATCH
    step = 0
    for epoch in range(EPOCHS):
        order = rng.permutation(len(images))
        losses = []
        for b in range(batches):
            rows = order[b * BATCH : (b + 1) * BATCH]
            step += 1
            rate = PEAK_RATE * 0.5 * (1 + np.cos(np.pi * step / (EPOCHS * batches)))
            params, stats, first, second, loss = train_step(
                params, stats, first, second, np.float32(step), np.float32(rate), images[rows], labels[rows]
            )
            losses.append(float(loss))
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1:3d}/{EPOCHS}  loss {np.mean(losses):.4f}", flush=True)
    return params, stats


def export_nodes():
    """The graph's nodes, in order; the convolutions have no bias because the normalisation has one."""
    kernel = {name: k for name, _, _, k in CONVOLUTIONS}
    nodes = []

    def add(op, name, inputs, output=None, **attributes):
        output = output or name
        nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def layer(value, name):
        k = kernel[name]
        pads = [k // 2] * 4
        y = add("Conv", name, [value, f"{name}.weight"], f"{name}.out", kernel_shape=[k, k], pads=pads, strides=[1, 1])
        bn = f"{name}.bn"
        inputs = [y, f"{bn}.scale", f"{bn}.bias", f"{bn}.mean", f"{bn}.var"]
        return add("BatchNormalization", bn, inputs, f"{bn}.out", epsilon=BN_EPSILON)

    x = add("Relu", "stem.relu", [layer("image", "stem")])
    y = add("Relu", "block1.relu1", [layer(x, "block1.conv1")])
    x = add("Add", "block1.add", [layer(y, "block1.conv2"), x])
    x = add("Relu", "block1.relu2", [x])
    x = add("MaxPool", "pool", [x], kernel_shape=[2, 2], strides=[2, 2])
    y = add("Relu", "block2.relu1", [layer(x, "block2.conv1")])
    x = add("Add", "block2.add", [layer(y, "block2.conv2"), layer(x, "block2.skip")])
    x = add("Relu", "block2.relu2", [x])
    x = add("GlobalAveragePool", "average", [x])
    x = add("Flatten", "flatten", [x], axis=1)
    add("Gemm", "head", [x, "head.weight", "head.bias"], "logits", transB=1)
    return nodes


def export_model(params, stats):
    weights = {**params, **stats}
    graph = helper.make_graph(
        export_nodes(),
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(np.asarray(weights[name], np.float32), name) for name in sorted(weights)],
        doc_string="8x8 handwritten digits; written by examples/digits/train_digits.py",
    )
    model = helper.make_model(graph, producer_name="ingot-example", opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 8  # the version that came with opset 17, so that older readers accept the file
    onnx.checker.check_model(model, full_check=True)
    return model


def write_pgm(path, image, zoom=8):
    """An 8-bit grey picture, dark ink on white, each pixel enlarged so that a viewer shows something."""
    pixels = np.kron(255 - np.rint(image * 255).astype(np.uint8), np.ones((zoom, zoom), np.uint8))
    path.write_bytes(b"P5\n%d %d\n255\n" % pixels.shape[::-1] + pixels.tobytes())


def write_images(folder, images, labels):
    """The first held-out image of each digit: one .npy and one .pgm each, and all ten in images.npy, labels.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = np.stack([images[np.flatnonzero(labels == digit)[0]] for digit in range(CLASSES)])
    for digit, image in enumerate(chosen):
        np.save(folder / f"digit_{digit}.npy", image[None])
        write_pgm(folder / f"digit_{digit}.pgm", image[0])
    np.save(folder / "images.npy", chosen)
    (folder / "labels.txt").write_text("".join(f"{digit}\n" for digit in range(CLASSES)))
    return chosen


def write_test_data(folder, chosen, logits):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "input_0.pb").write_bytes(numpy_helper.from_array(chosen, "image").SerializeToString())
    (folder / "output_0.pb").write_bytes(numpy_helper.from_array(logits, "logits").SerializeToString())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    train_x, test_x, train_y, test_y = load_data()
    print(f"{len(train_x)} training images, {len(test_x)} held out", flush=True)
    params, stats = train(train_x, train_y)

    path = out / "digits.onnx"
    onnx.save(export_model(params, stats), path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"image": test_x})
    expected = np.asarray(forward(params, stats, test_x, training=False)[0])
    difference = np.linalg.norm(logits - expected) / np.linalg.norm(expected)
    correct = int((logits.argmax(1) == test_y).sum())
    print(f"held-out accuracy {correct}/{len(test_y)} = {100 * correct / len(test_y):.2f}% (onnxruntime)")
    print(f"exported file against the trained network: relative difference {difference:.1e}")

    chosen = write_images(out / "images", test_x, test_y)
    (chosen_logits,) = session.run(None, {"image": chosen})
    write_test_data(out / "test_data_set_0", chosen, chosen_logits)
    print(f"ten sample images: predicted {chosen_logits.argmax(1).tolist()}")
    print(f"wrote {path} ({path.stat().st_size} bytes)")
    if correct < REQUIRED_ACCURACY * len(test_y) or difference > 1e-5:
        raise SystemExit("error: accuracy or export check failed; the files are not fit for use")


if __name__ == "__main__":
    main()
