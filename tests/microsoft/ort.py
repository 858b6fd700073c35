"""ONNX Runtime through its C interface, called by the interface's stable function numbers: what tests compare with."""
import ctypes as C

import numpy as np

P = C.c_void_p
# ONNXTensorElementDataType
TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64, 12: np.uint32,
         13: np.uint64}
NUMBERS = {np.dtype(t): n for n, t in TYPES.items()}


class Base(C.Structure):
    _fields_ = [("get_api", C.CFUNCTYPE(P, C.c_uint32)), ("version", C.CFUNCTYPE(C.c_char_p))]


class Runtime:
    def __init__(self, library):
        lib = C.CDLL(library)
        lib.OrtGetApiBase.restype = C.POINTER(Base)
        self.table = C.cast(lib.OrtGetApiBase().contents.get_api(13), C.POINTER(P))
        self.environment, self.memory, self.allocator = P(), P(), P()
        self.call(3, 3, b"test", C.pointer(self.environment))
        self.call(69, 0, 0, C.pointer(self.memory))
        self.call(78, C.pointer(self.allocator))

    def call(self, number, *args):
        kinds = [C.c_size_t if isinstance(a, int) else C.c_char_p if isinstance(a, bytes) else type(a) for a in args]
        status = C.CFUNCTYPE(P, *kinds)(self.table[number])(*args)
        if status:
            raise RuntimeError(C.CFUNCTYPE(C.c_char_p, P)(self.table[2])(status).decode())

    def run(self, path, inputs, optimize=0, optimized_path=None):
        """The outputs of the model at `path`: {name: array}, from {name: array}."""
        options, session = P(), P()
        self.call(10, C.pointer(options))
        self.call(23, options, optimize)
        self.call(24, options, 1)
        if optimized_path:
            self.call(11, options, optimized_path.encode())
        self.call(7, self.environment, path.encode(), options, C.pointer(session))
        names, values, alive = [], [], []
        for name, x in inputs.items():
            x = np.ascontiguousarray(x).reshape(np.shape(x))
            shape, value = (C.c_int64 * max(1, x.ndim))(*x.shape), P()
            alive += [x, shape]
            self.call(49, self.memory, P(x.ctypes.data), x.nbytes, C.cast(shape, P), x.ndim, NUMBERS[x.dtype], C.pointer(value))
            names.append(name.encode())
            values.append(value.value)
        count, outputs = C.c_size_t(), []
        self.call(31, session, C.pointer(count))
        for i in range(count.value):
            name = C.c_char_p()
            self.call(37, session, i, self.allocator, C.pointer(name))
            outputs.append(name.value)
        results = (P * len(outputs))()
        self.call(9, session, P(), C.cast((C.c_char_p * len(names))(*names), P), C.cast((P * len(values))(*values), P), len(names),
                  C.cast((C.c_char_p * len(outputs))(*outputs), P), len(outputs), C.cast(results, P))
        found = {}
        for name, value in zip(outputs, results):
            info, rank, kind, data = P(), C.c_size_t(), C.c_int(), P()
            self.call(65, P(value), C.pointer(info))
            self.call(60, info, C.pointer(kind))
            self.call(61, info, C.pointer(rank))
            dims = (C.c_int64 * max(1, rank.value))()
            self.call(62, info, C.cast(dims, P), rank.value)
            self.call(51, P(value), C.pointer(data))
            shape, dtype = tuple(dims[:rank.value]), np.dtype(TYPES[kind.value])
            size = int(np.prod(shape)) * dtype.itemsize
            found[name.decode()] = np.frombuffer(C.string_at(data, size), dtype).reshape(shape) if size else np.zeros(shape, dtype)
        return found
