"""The C API (runtime/include/ingot/ingot.h) through ctypes, for the scripts of this folder: load an engine file and
run it on memory that belongs to others, PyTorch's tensors or NumPy's arrays, on their stream and inside their
captures.

    runtime = Runtime("build/release/lib/libingot_runtime.so")
    session = runtime.session("model.ingot", "cuda:0")
    session.enqueue([x], [y], torch.cuda.current_stream().cuda_stream)

Only what has `data_ptr`, `dtype` and `shape` (PyTorch), or `__array_interface__` (NumPy) is a tensor here; it must be
contiguous, of the type that the engine wants, and on a GPU aligned to 16 bytes. A call that fails raises RuntimeError
with the library's message. Nothing here is thread-safe beyond what ingot.h says: a session belongs to one thread.
"""

import ctypes

MAX_RANK = 16
TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e5m2": 19,
}
NAMES = {number: name for name, number in TYPES.items()}


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.c_int64 * MAX_RANK),
    ]


class Binding(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.c_int64 * MAX_RANK),
        ("low", ctypes.c_int64 * MAX_RANK),
        ("high", ctypes.c_int64 * MAX_RANK),
    ]


class LoadOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("trust_host_code", ctypes.c_int32), ("skip_weight_check", ctypes.c_int32)]


class SessionOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("no_lanes", ctypes.c_int32),
        ("no_recordings", ctypes.c_int32),
        ("max_plans", ctypes.c_int32),
        ("max_recordings", ctypes.c_int32),
        ("max_arena_bytes", ctypes.c_uint64),
        ("synchronous", ctypes.c_int32),
    ]


_HANDLE, _LIST, _INT = ctypes.c_void_p, ctypes.POINTER(Tensor), ctypes.c_int32
_OUT = ctypes.POINTER(ctypes.c_void_p)
# name: (result is a status, argument types)
_FUNCTIONS = {
    "ingot_device_open": (True, [ctypes.c_char_p, _OUT]),
    "ingot_device_free": (False, [_HANDLE]),
    "ingot_engine_load": (True, [ctypes.c_char_p, _HANDLE, ctypes.POINTER(LoadOptions), _OUT]),
    "ingot_engine_free": (False, [_HANDLE]),
    "ingot_engine_input": (True, [_HANDLE, _INT, ctypes.POINTER(Binding)]),
    "ingot_engine_output": (True, [_HANDLE, _INT, ctypes.POINTER(Binding)]),
    "ingot_session_create": (True, [_HANDLE, ctypes.POINTER(SessionOptions), _OUT]),
    "ingot_session_free": (False, [_HANDLE]),
    "ingot_session_output_dims": (True, [_HANDLE, _LIST, _INT, _LIST, _INT]),
    "ingot_session_enqueue": (True, [_HANDLE, _LIST, _INT, _LIST, _INT, ctypes.c_void_p]),
    "ingot_session_synchronize": (True, [_HANDLE]),
}


def describe(tensor):
    """The C structure for a tensor of PyTorch or NumPy."""
    out = Tensor()
    if hasattr(tensor, "data_ptr"):
        if not tensor.is_contiguous():
            raise RuntimeError(f"a tensor of shape {tuple(tensor.shape)} is not contiguous")
        name, out.data = str(tensor.dtype).split(".")[-1], tensor.data_ptr()
        out.bytes = tensor.numel() * tensor.element_size()
    else:
        if not tensor.flags["C_CONTIGUOUS"]:
            raise RuntimeError(f"an array of shape {tensor.shape} is not contiguous")
        name, out.data, out.bytes = str(tensor.dtype), tensor.ctypes.data, tensor.nbytes
    out.type, out.rank = TYPES[name], len(tensor.shape)
    for d, size in enumerate(tensor.shape):
        out.dims[d] = size
    return out


def _array(tensors):
    return (Tensor * max(1, len(tensors)))(*[describe(t) for t in tensors])


class Runtime:
    """The library at `path`, and the devices that were opened through it."""

    def __init__(self, path):
        self.library, self.devices = ctypes.CDLL(str(path)), {}
        self.library.ingot_last_error.restype = ctypes.c_char_p
        for name in ("ingot_engine_input_count", "ingot_engine_output_count"):
            getattr(self.library, name).argtypes = [_HANDLE]
        for name, (status, arguments) in _FUNCTIONS.items():
            function = getattr(self.library, name)
            function.argtypes, function.restype = arguments, _INT if status else None

    def call(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != 0:
            raise RuntimeError(f"{name}: {self.library.ingot_last_error().decode()}")

    def device(self, name):
        """The handle of a device ("cuda:0", "cpu", "cpu:4"), opened once and kept."""
        if name not in self.devices:
            handle = ctypes.c_void_p()
            self.call("ingot_device_open", name.encode(), ctypes.byref(handle))
            self.devices[name] = handle
        return self.devices[name]

    def session(self, path, device, recordings=True):
        """A session of the engine file at `path`, which is trusted to hold code for this CPU. recordings: CUDA graphs
        of its own."""
        engine, session = ctypes.c_void_p(), ctypes.c_void_p()
        load = LoadOptions(ctypes.sizeof(LoadOptions), 1, 1)
        options = SessionOptions(size=ctypes.sizeof(SessionOptions), no_recordings=not recordings)
        self.call(
            "ingot_engine_load", str(path).encode(), self.device(device), ctypes.byref(load), ctypes.byref(engine)
        )
        try:
            self.call("ingot_session_create", engine, ctypes.byref(options), ctypes.byref(session))
            return Session(self, engine, session)
        finally:
            self.library.ingot_engine_free(engine)  # the session keeps the engine alive


class Session:
    """What runs one engine. `inputs` and `outputs` are their names in order; free() gives the memory back."""

    def __init__(self, runtime, engine, handle):
        self.runtime, self.handle = runtime, handle
        self.inputs, self.outputs = self._names(engine, "input"), self._names(engine, "output")

    def _names(self, engine, side):
        count = getattr(self.runtime.library, f"ingot_engine_{side}_count")(engine)
        names = []
        for i in range(count):
            binding = Binding(ctypes.sizeof(Binding))
            self.runtime.call(f"ingot_engine_{side}", engine, i, ctypes.byref(binding))
            names.append(binding.name.decode())
        return names

    def output_types(self, inputs):
        """(dims, name of the element type) of each output for these inputs."""
        given, found = _array(inputs), (Tensor * max(1, len(self.outputs)))()
        self.runtime.call("ingot_session_output_dims", self.handle, given, len(inputs), found, len(self.outputs))
        return [(tuple(found[i].dims[: found[i].rank]), NAMES[found[i].type]) for i in range(len(self.outputs))]

    def bind(self, inputs, outputs, stream=None):
        """A function without arguments that enqueues one run on these tensors, and holds on to them. `stream` is a
        number (cudaStream_t), a function that gives one at each call, or None: the session's own."""
        given, wanted = _array(inputs), _array(outputs)

        def enqueue(keep=(inputs, outputs)):
            on = stream() if callable(stream) else stream
            self.runtime.call("ingot_session_enqueue", self.handle, given, len(inputs), wanted, len(outputs), on)

        return enqueue

    def enqueue(self, inputs, outputs, stream=None):
        """Starts one run. The tensors must live until it is done."""
        self.bind(inputs, outputs, stream)()

    def synchronize(self):
        """Waits for runs on the session's own stream."""
        self.runtime.call("ingot_session_synchronize", self.handle)

    def free(self):
        if self.handle:
            self.runtime.library.ingot_session_free(self.handle)
            self.handle = None

    def __del__(self):
        self.free()
