"""Writes small ONNX models byte by byte, so that names can hold anything, text that is no UTF-8 among it."""


def number(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytearray([value]))


def field(tag, content):
    """A field of a message: a number, or bytes or text with their length."""
    if isinstance(content, int):
        return number(tag << 3) + number(content)
    content = content.encode() if isinstance(content, str) else content
    return number(tag << 3 | 2) + number(len(content)) + content


def node(op, name, inputs, outputs, attributes=()):
    return field(1, b"".join([*(field(1, i) for i in inputs), *(field(2, o) for o in outputs), field(3, name), field(4, op),
                              *(field(5, a) for a in attributes)]))


def attribute(name, content):
    """An integer, or a graph as model() has it."""
    whole = isinstance(content, int)
    return field(1, name) + field(3 if whole else 6, content) + field(20, 2 if whole else 5)


def value(tag, name, dims):
    shape = b"".join(field(1, field(1, d) if isinstance(d, int) else field(2, d)) for d in dims)
    return field(tag, field(1, name) + field(2, field(1, field(1, 1) + field(2, shape))))


def model(nodes, inputs, outputs, name="graph"):
    """A model of f32 values: nodes as node() makes them, inputs and outputs as (name, dims)."""
    graph = b"".join([*nodes, field(2, name), *(value(11, *i) for i in inputs), *(value(12, *o) for o in outputs)])
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17))


# What would end a script element, an attribute or a string, open a comment, or is no text at all.
HOSTILE = [
    b"</script><script>window.broken = 1</script>", b"<!--<script>", b"]]>", b"\"'`${window.broken = 1}\\", b"\xff\xfe\x80 bytes",
    b"<img src=x onerror='window.broken = 1'>", "\u2028\u2029 {{page/main.js}} {{data}}".encode(), b"a\x00b\x07\n\t",
]


def hostile_model():
    """A chain of nodes, named by HOSTILE, with values and dimensions of such names."""
    names = [b"x" + h for h in HOSTILE] + [b"y" + HOSTILE[0]]
    nodes = [node("Softmax" if i % 2 else "Relu", h, [names[i]], [names[i + 1]]) for i, h in enumerate(HOSTILE)]
    return model(nodes, [(names[0], [b"n<b>", 16])], [(names[-1], [b"n<b>", 16])], HOSTILE[0])


def course_model():
    """Its sizes follow from NonZero, and an If takes one of two branches."""
    def branch(op):
        return node(op, f"{op} inside", ["sizes"], [f"{op} out"]) + field(2, op) + value(12, f"{op} out", ["k", 8])
    nodes = [
        node("NonZero", "where", ["x"], ["index"]),
        node("Transpose", "turned", ["index"], ["tuples"]),
        node("GatherND", "chosen", ["y", "tuples"], ["sizes"]),
        node("ReduceMax", "largest", ["x"], ["most"], [attribute("keepdims", 0)]),
        node("Cast", "decide", ["most"], ["condition"], [attribute("to", 9)]),
        node("If", "fork", ["condition"], ["z"], [attribute("then_branch", branch("Relu")), attribute("else_branch", branch("Neg"))]),
    ]
    return model(nodes, [("x", ["n"]), ("y", ["n", 8])], [("z", ["k", 8])])


def large_model(count):
    """About `count` nodes: blocks that widen to four branches and join again, with a way around each."""
    nodes, at = [], "x"
    while len(nodes) < count:
        i = len(nodes)
        for b in range(4):
            nodes.append(node("Softmax" if b == 3 else "Relu", f"block{i}/branch{b}", [at], [f"b{i}_{b}"]))
        nodes.append(node("Add", f"block{i}/left", [f"b{i}_0", f"b{i}_1"], [f"l{i}"]))
        nodes.append(node("Mul", f"block{i}/right", [f"b{i}_2", f"b{i}_3"], [f"r{i}"]))
        nodes.append(node("Add", f"block{i}/join", [f"l{i}", f"r{i}"], [f"j{i}"]))
        nodes.append(node("Add", f"block{i}/around", [f"j{i}", at], [f"o{i}"]))
        at = f"o{i}"
    return model(nodes, [("x", ["n", 64])], [(at, ["n", 64])])
