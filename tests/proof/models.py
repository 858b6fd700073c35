"""Small models as exports spell them, with nothing but the standard library. B batch, T tokens, C channels, H heads."""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "cli"))
import onnx_writer as ox  # noqa: E402

C, H, VOCABULARY = 32, 4, 50


class Writer:
    """Collects nodes and weights; values are named after their nodes."""

    def __init__(self, seed=1):
        self.nodes, self.weights, self.random = [], [], random.Random(seed)

    def node(self, op, inputs, name, outputs=1, **attributes):
        results = [f"{name}_out{i}" if outputs > 1 else f"{name}_out" for i in range(outputs)]
        self.nodes.append(ox.node(op, inputs, results, name, **attributes))
        return results if outputs > 1 else results[0]

    def weight(self, name, shape, scale=0.2, offset=0.0):
        count = 1
        for size in shape:
            count *= size
        values = ox.floats([offset + self.random.uniform(-scale, scale) for _ in range(count)])
        self.weights.append(ox.tensor(name, ox.FLOAT, shape, values))
        return name

    def number(self, name, value):
        self.weights.append(ox.tensor(name, ox.FLOAT, [], ox.floats([value])))
        return name

    def integers(self, name, values):
        self.weights.append(ox.tensor(name, ox.INT64, [len(values)], ox.int64s(values)))
        return name

    def linear(self, x, name, n_in=C, n_out=C):
        y = self.node("MatMul", [x, self.weight(name + ".w", [n_in, n_out])], name + "/MatMul")
        return self.node("Add", [y, self.weight(name + ".b", [n_out])], name + "/Add")

    def layer_norm(self, x, name):
        mean = self.node("ReduceMean", [x], name + "/Mean", axes=[-1])
        centred = self.node("Sub", [x, mean], name + "/Sub")
        square = self.node("Pow", [centred, self.number(name + ".two", 2)], name + "/Pow")
        variance = self.node("ReduceMean", [square], name + "/Variance", axes=[-1])
        deviation = self.node("Sqrt", [self.node("Add", [variance, self.number(name + ".eps", 1e-5)], name + "/Eps")],
                              name + "/Sqrt")
        y = self.node("Div", [centred, deviation], name + "/Div")
        y = self.node("Mul", [y, self.weight(name + ".g", [C], offset=1)], name + "/Scale")
        return self.node("Add", [y, self.weight(name + ".b", [C])], name + "/Shift")

    def gelu(self, x, name):
        y = self.node("Div", [x, self.number(name + ".root", 2 ** 0.5)], name + "/Div")
        y = self.node("Add", [self.node("Erf", [y], name + "/Erf"), self.number(name + ".one", 1)], name + "/Add")
        y = self.node("Mul", [x, y], name + "/Mul")
        return self.node("Mul", [y, self.number(name + ".half", 0.5)], name + "/Half")

    def heads(self, x, name):
        y = self.node("Reshape", [x, self.integers(name + ".shape", [0, 0, H, C // H])], name + "/Reshape")
        return self.node("Transpose", [y], name + "/Transpose", perm=[0, 2, 1, 3])

    def attention(self, x, mask, name):
        q, k, v = (self.heads(self.linear(x, f"{name}/{part}"), f"{name}/{part}") for part in "qkv")
        k = self.node("Transpose", [k], name + "/KT", perm=[0, 1, 3, 2])
        scores = self.node("MatMul", [q, k], name + "/Scores")
        scores = self.node("Div", [scores, self.number(name + ".scale", (C // H) ** 0.5)], name + "/Scaled")
        scores = self.node("Add", [scores, mask], name + "/Masked")
        y = self.node("MatMul", [self.node("Softmax", [scores], name + "/Softmax", axis=-1), v], name + "/Context")
        y = self.node("Transpose", [y], name + "/Back", perm=[0, 2, 1, 3])
        y = self.node("Reshape", [y, self.integers(name + ".joined", [0, 0, C])], name + "/Join")
        return self.linear(y, name + "/o")

    def model(self, inputs, outputs, opset=14):
        return ox.model(ox.graph(self.nodes, inputs, outputs, self.weights), opset=opset)


def bert(layers=2):
    """An encoder: input_ids, attention_mask [batch, seq] -> hidden [batch, seq, C]."""
    w = Writer()
    x = w.node("Gather", [w.weight("words", [VOCABULARY, C], 1), "input_ids"], "words")
    x = w.layer_norm(x, "ln")
    mask = w.node("Cast", ["attention_mask"], "mask/Cast", to=1)
    mask = w.node("Unsqueeze", [mask, w.integers("mask.axes", [1, 2])], "mask/Unsqueeze")
    mask = w.node("Sub", [w.number("mask.one", 1), mask], "mask/Sub")
    mask = w.node("Mul", [mask, w.number("mask.fill", -10000)], "mask/Mul")
    for i in range(layers):
        p = f"l{i}"
        x = w.layer_norm(w.node("Add", [w.attention(x, mask, p + "/att"), x], p + "/res1"), p + "/ln1")
        h = w.gelu(w.linear(x, p + "/up", C, 4 * C), p + "/gelu")
        x = w.layer_norm(w.node("Add", [w.linear(h, p + "/down", 4 * C, C), x], p + "/res2"), p + "/ln2")
    shape = ["batch", "seq"]
    return w.model([ox.value_info("input_ids", ox.INT64, shape), ox.value_info("attention_mask", ox.INT64, shape)],
                   [ox.value_info(x, ox.FLOAT, shape + [C])])


def conv_net():
    """Two convolutions with batch norms, hard swish and silu: x [1, 3, 16, 16]."""
    w = Writer(2)
    x = "x"
    for i, (n_in, n_out) in enumerate(((3, 8), (8, 8))):
        x = w.node("Conv", [x, w.weight(f"c{i}.w", [n_out, n_in, 3, 3])], f"c{i}/Conv", pads=[1, 1, 1, 1])
        statistics = [w.weight(f"c{i}.g", [n_out], offset=1), w.weight(f"c{i}.b", [n_out]),
                      w.weight(f"c{i}.mean", [n_out]), w.weight(f"c{i}.var", [n_out], offset=1)]
        x = w.node("BatchNormalization", [x, *statistics], f"c{i}/Norm")
        if i == 0:
            y = w.node("Add", [x, w.number("three", 3)], "hs/Add")
            y = w.node("Clip", [y, w.number("zero", 0), w.number("six", 6)], "hs/Clip")
            x = w.node("Div", [w.node("Mul", [x, y], "hs/Mul"), w.number("div6", 6)], "hs/Div")
        else:
            x = w.node("Mul", [x, w.node("Sigmoid", [x], "silu/Sigmoid")], "silu/Mul")
    x = w.node("Mul", [x, w.number("one", 1)], "times_one")
    x = w.node("Add", [x, w.node("Sqrt", [w.number("nine", 9)], "folded")], "plus_three")
    return w.model([ox.value_info("x", ox.FLOAT, [1, 3, 16, 16])], [ox.value_info(x, ox.FLOAT, [1, 8, 16, 16])])


def gated():
    """RMS norm and a gated FFN: x [batch, seq, C]."""
    w = Writer(3)
    square = w.node("Mul", ["x", "x"], "rms/Square")
    mean = w.node("Add", [w.node("ReduceMean", [square], "rms/Mean", axes=[-1]), w.number("eps", 1e-5)], "rms/Eps")
    y = w.node("Div", ["x", w.node("Sqrt", [mean], "rms/Sqrt")], "rms/Div")
    y = w.node("Mul", [y, w.weight("rms.g", [C], offset=1)], "rms/Scale")
    gate = w.node("MatMul", [y, w.weight("gate", [C, 2 * C])], "gate/MatMul")
    gate = w.node("Mul", [gate, w.node("Sigmoid", [gate], "gate/Sigmoid")], "gate/Mul")
    up = w.node("MatMul", [y, w.weight("up", [C, 2 * C])], "up/MatMul")
    y = w.node("MatMul", [w.node("Mul", [gate, up], "gated"), w.weight("down", [2 * C, C])], "down/MatMul")
    y = w.node("Add", [y, "x"], "residual")
    return w.model([ox.value_info("x", ox.FLOAT, ["batch", "seq", C])], [ox.value_info(y, ox.FLOAT, ["batch", "seq", C])])
