"""Writes small ONNX models and test data, with nothing but the standard library (onnx.proto's field numbers)."""
import struct

FLOAT, UINT8, INT8, INT32, INT64, STRING, BOOL, FLOAT16, DOUBLE = 1, 2, 3, 6, 7, 8, 9, 10, 11


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while True:
        out.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    data = value if isinstance(value, bytes) else value.encode()
    return varint(field << 3 | 2) + varint(len(data)) + data


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def int64s(values):
    return struct.pack(f"<{len(values)}q", *values)


def tensor(name, data_type, dims, raw, location=None):
    """A TensorProto. `location`: {"location": file, "offset": ..., "length": ...} instead of raw bytes."""
    out = b"".join(number(1, d) for d in dims) + number(2, data_type) + text(8, name)
    if location is None:
        return out + text(9, raw)
    entries = b"".join(text(13, text(1, k) + text(2, str(v))) for k, v in location.items())
    return out + entries + number(14, 1)


def tensor_type(data_type, dims):
    """A TypeProto; dims are numbers or names."""
    shape = b"".join(text(1, number(1, d) if isinstance(d, int) else text(2, d)) for d in dims)
    return text(1, number(1, data_type) + text(2, shape))


def value_info(name, data_type, dims):
    return text(1, name) + text(2, tensor_type(data_type, dims))


def attribute(name, value):
    out = text(1, name)
    if isinstance(value, int):
        return out + number(3, value) + number(20, 2)
    if isinstance(value, float):
        return out + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, list):
        return out + b"".join(number(8, v) for v in value) + number(20, 7)
    if isinstance(value, str):
        return out + text(4, value) + number(20, 3)
    return out + text(6, value) + number(20, 5)  # a graph


def node(op, inputs, outputs, name="", domain="", **attributes):
    out = b"".join(text(1, i) for i in inputs) + b"".join(text(2, o) for o in outputs)
    out += text(3, name) + text(4, op) + text(7, domain)
    return out + b"".join(text(5, attribute(k, v)) for k, v in attributes.items())


def graph(nodes, inputs, outputs, initializers=(), name="g"):
    out = b"".join(text(1, n) for n in nodes) + text(2, name) + b"".join(text(5, t) for t in initializers)
    return out + b"".join(text(11, i) for i in inputs) + b"".join(text(12, o) for o in outputs)


def model(graph_bytes, opset=17, ir_version=8):
    return number(1, ir_version) + text(7, graph_bytes) + text(8, text(1, "") + number(2, opset))


def npy(descr, shape, raw):
    """A .npy file, version 1.0."""
    shown = "(" + ", ".join(str(s) for s in shape) + ("," if len(shape) == 1 else "") + ")"
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shown}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + raw


def read_npy(data):
    """(descr, shape, raw bytes) of a .npy file."""
    assert data[:6] == b"\x93NUMPY", data[:6]
    width = 2 if data[6] == 1 else 4
    length = int.from_bytes(data[8:8 + width], "little")
    header = eval(data[8 + width:8 + width + length].decode(), {})  # a literal that our own program wrote
    return header["descr"], header["shape"], data[8 + width + length:]
