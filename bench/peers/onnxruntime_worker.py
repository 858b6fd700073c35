#!/usr/bin/python3
"""A worker that runs a model on ONNX Runtime's C library: see interleave.py.

usage: onnxruntime_worker.py LIBRARY MODEL.onnx THREADS NAME=FILE.npy ...

The C interface is a table of functions whose order never changes (onnxruntime_c_api.h); the numbers below are places in
it. All optimisations of the graph are on, one thread runs between operators.
"""
import ctypes
import json
import sys
import time

import numpy as np

CREATE_STATUS_MESSAGE, CREATE_ENV, CREATE_SESSION, RUN, CREATE_OPTIONS = 2, 3, 7, 9, 10
SET_OPTIMISATION, SET_INTRA_THREADS, SET_INTER_THREADS = 23, 24, 25
OUTPUT_COUNT, OUTPUT_NAME, CREATE_TENSOR, CREATE_CPU_MEMORY, DEFAULT_ALLOCATOR, RELEASE_VALUE = 31, 37, 49, 69, 78, 96
API_VERSION = 13
ALL_OPTIMISATIONS, ERRORS_ONLY = 99, 3
# ONNXTensorElementDataType
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}
Pointer = ctypes.c_void_p


class ApiBase(ctypes.Structure):
    _fields_ = [("get_api", ctypes.CFUNCTYPE(Pointer, ctypes.c_uint32)), ("version", ctypes.CFUNCTYPE(ctypes.c_char_p))]


class Runtime:
    def __init__(self, library):
        self.library = ctypes.CDLL(library)
        self.library.OrtGetApiBase.restype = ctypes.POINTER(ApiBase)
        base = self.library.OrtGetApiBase().contents
        self.version = base.version().decode()
        self.table = ctypes.cast(base.get_api(API_VERSION), ctypes.POINTER(Pointer))

    def function(self, place, result, *types):
        return ctypes.CFUNCTYPE(result, *types)(self.table[place])

    def check(self, status):
        if status:
            message = self.function(CREATE_STATUS_MESSAGE, ctypes.c_char_p, Pointer)(status)
            raise SystemExit(f"onnxruntime: {message.decode()}")

    def call(self, place, *arguments):
        kinds = {int: ctypes.c_size_t, bytes: ctypes.c_char_p}
        types = [kinds.get(type(a), type(a)) for a in arguments]
        self.check(self.function(place, Pointer, *types)(*arguments))


def main():
    library, model, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    ort = Runtime(library)
    env, options, session, memory, allocator = Pointer(), Pointer(), Pointer(), Pointer(), Pointer()
    ort.call(CREATE_ENV, ERRORS_ONLY, b"bench", ctypes.pointer(env))
    ort.call(CREATE_OPTIONS, ctypes.pointer(options))
    ort.call(SET_OPTIMISATION, options, ALL_OPTIMISATIONS)
    ort.call(SET_INTRA_THREADS, options, threads)
    ort.call(SET_INTER_THREADS, options, 1)
    start = time.perf_counter()
    ort.call(CREATE_SESSION, env, model.encode(), options, ctypes.pointer(session))
    load_ms = (time.perf_counter() - start) * 1e3
    ort.call(CREATE_CPU_MEMORY, 0, 0, ctypes.pointer(memory))
    ort.call(DEFAULT_ALLOCATOR, ctypes.pointer(allocator))

    names, values, alive = [], [], []
    for given in sys.argv[4:]:
        name, file = given.split("=", 1)
        array = np.ascontiguousarray(np.load(file))
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        value = Pointer()
        ort.call(CREATE_TENSOR, memory, Pointer(array.ctypes.data), array.nbytes, ctypes.cast(shape, Pointer), array.ndim,
                 TYPES[str(array.dtype)], ctypes.pointer(value))
        names.append(name.encode())
        values.append(value.value)
        alive += [array, shape]
    count = ctypes.c_size_t()
    ort.call(OUTPUT_COUNT, session, ctypes.pointer(count))
    outputs = []
    for i in range(count.value):
        name = ctypes.c_char_p()
        ort.call(OUTPUT_NAME, session, i, allocator, ctypes.pointer(name))
        outputs.append(name.value)
    input_names, input_values = (ctypes.c_char_p * len(names))(*names), (Pointer * len(names))(*values)
    output_names = (ctypes.c_char_p * len(outputs))(*outputs)
    run = ort.function(RUN, Pointer, Pointer, Pointer, Pointer, Pointer, ctypes.c_size_t, Pointer, ctypes.c_size_t, Pointer)
    release = ort.function(RELEASE_VALUE, None, Pointer)

    def once():
        results = (Pointer * len(outputs))()
        start = time.perf_counter()
        status = run(session, None, ctypes.cast(input_names, Pointer), ctypes.cast(input_values, Pointer), len(names),
                     ctypes.cast(output_names, Pointer), len(outputs), ctypes.cast(results, Pointer))
        took = time.perf_counter() - start
        ort.check(status)
        for value in results:
            release(value)
        return took * 1e3

    for line in sys.stdin:
        runs = int(line)
        once()  # wakes the pool
        ms = sorted(once() for _ in range(runs))
        print(json.dumps({"engine": f"onnxruntime {ort.version}", "median_ms": ms[len(ms) // 2], "min_ms": ms[0],
                          "load_ms": load_ms}), flush=True)


if __name__ == "__main__":
    main()
