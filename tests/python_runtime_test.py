"""The benchmarks' way to the C API (bench/ingot_runtime.py): its structures are those of ingot.h, so that a run through it
gives the very numbers of `ingot run`, and what a caller gets wrong is an error with the library's message.

    python3 tests/python_runtime_test.py build/release/bin/ingot build/release/lib/libingot_runtime.so

Needs neither NumPy nor PyTorch.
"""

import array
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER / "bench"))
from ingot_runtime import Runtime  # noqa: E402

DIGITS = FOLDER.parent / "examples" / "digits"
CODES = {"float32": "f", "float64": "d"}


class Values:
    """What ingot_runtime.py takes as a tensor: the part of PyTorch's that it looks at."""

    def __init__(self, shape, values, dtype="float32"):
        self.shape, self.dtype, self.values = shape, dtype, array.array(CODES[dtype], values)

    def data_ptr(self):
        return self.values.buffer_info()[0]

    def numel(self):
        return math.prod(self.shape)

    def element_size(self):
        return self.values.itemsize

    def is_contiguous(self):
        return True


def read_npy(path):
    data = path.read_bytes()
    start = 10 + struct.unpack_from("<H", data, 8)[0]
    return array.array("f", data[start:])


def expected(ingot, file, image, out):
    subprocess.run(
        [ingot, "run", file, "--device", "cpu", "--input", f"image={image}", "--output-dir", out],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return read_npy(out / "logits.npy")


def message_of(call):
    """The text of the RuntimeError that `call` ends with; "" when it ends well."""
    try:
        call()
        return ""
    except RuntimeError as e:
        return str(e)


def check(good, what):
    print("ok  " if good else "FAIL", what)
    return not good


def main(ingot, library):
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        file = out / "digits.ingot"
        subprocess.run(
            [ingot, "compile", DIGITS / "digits.onnx", "-o", file, "--target", "cpu"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        runtime = Runtime(library)
        session = runtime.session(file, "cpu:1")
        failures += check((session.inputs, session.outputs) == (["image"], ["logits"]), "names of inputs and outputs")
        images = [read_npy(DIGITS / "images" / f"digit_{i}.npy") for i in range(3)]
        want = [expected(ingot, file, DIGITS / "images" / f"digit_{i}.npy", out) for i in range(3)]
        failures += check(len(images[0]) == 64 and len(want[0]) == 10, "sizes of the files")
        for batch in (1, 3):  # two shapes of one session
            x = Values((batch, 1, 8, 8), [v for image in images[:batch] for v in image])
            failures += check(
                session.output_types([x]) == [((batch, 10), "float32")], f"dims and type of the result of {batch}"
            )
            y = Values((batch, 10), [math.nan] * batch * 10)
            run = session.bind([x], [y])
            run()
            session.synchronize()
            close = all(
                abs(a - b) <= 1e-5 * (1 + abs(b)) for a, b in zip(y.values, [v for w in want[:batch] for v in w])
            )
            failures += check(close, f"the numbers of `ingot run`, {batch} images")
        y = Values((1, 10), [0.0] * 10)
        small, double = Values((1, 1, 4, 8), [0.0] * 32), Values((1, 1, 8, 8), [0.0] * 64, "float64")
        failures += check(
            "must be 8" in message_of(lambda: session.enqueue([small], [y])), "an input of other dims is refused"
        )
        failures += check(
            "f32" in message_of(lambda: session.enqueue([double], [y])), "an input of another type is refused"
        )
        short = Values((1, 4), [0.0] * 4)
        failures += check(
            "needs 40 bytes" in message_of(lambda: session.enqueue([Values((1, 1, 8, 8), images[0])], [short])),
            "a result without room is refused",
        )
        failures += check(
            "ingot_device_open" in message_of(lambda: runtime.device("abacus")), "an unknown device is refused"
        )
        session.free()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
