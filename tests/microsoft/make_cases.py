#!/usr/bin/python3
"""Writes the cases of com.microsoft operators in the form of ONNX's own: model.onnx, test_data_set_0/{input,output}_N.pb.

usage: make_cases.py FOLDER LIBONNXRUNTIME [PREFIX...]     only cases of these names; needs python3-onnx, python3-numpy
Expected values are those of ONNX Runtime, or of the formula beside the case where its CPU build lacks the operator.
"""
import math
import os
import pickle
import shutil
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ort import Runtime

FOLDER, LIBRARY = sys.argv[1:3]
MS = "com.microsoft"
F32, F16, U8, I8, I32, I64 = np.float32, np.float16, np.uint8, np.int8, np.int32, np.int64
random = np.random.default_rng(7)
failed = []


def f(*shape, scale=1.0, dtype=F32):
    return np.round(random.standard_normal(shape) * scale, 3).astype(dtype)


def q(*shape, dtype=U8):
    info = np.iinfo(dtype)
    x = random.integers(info.min, info.max, shape, endpoint=True)
    # Seven bits where signed: ONNX Runtime saturates sums of two products of u8 and i8 on CPUs without VNNI.
    return (x // 2 if dtype == I8 else x).astype(dtype)


def ints(values, dtype=I32):
    return np.array(values, dtype)


def s(value, dtype=F32):
    return np.array(value, dtype)


def save(path, array):
    with open(path, "wb") as file:
        file.write(numpy_helper.from_array(np.ascontiguousarray(array).reshape(np.shape(array))).SerializeToString())


def case(name, op, inputs, outputs=1, constants=(), domain=MS, expected=None, opset=17, typed=(), **attributes):
    """One node. inputs: arrays, or None where absent; `constants`: which of them the model holds. outputs: a count, or a
    list of which are asked for. expected: arrays, where ONNX Runtime has none."""
    if len(sys.argv) > 3 and not name.startswith(tuple(sys.argv[3:])):
        return
    wanted = [i < outputs for i in range(outputs)] if isinstance(outputs, int) else outputs
    node_in = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    node_out = [f"y{i}" if w else "" for i, w in enumerate(wanted)]
    node = helper.make_node(op, node_in, node_out, name=name, domain=domain, **{k.replace("softmax_opset", "opset"): v for k, v in attributes.items()})
    given = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and i not in constants}
    held = [numpy_helper.from_array(inputs[i], f"x{i}") for i in constants]

    def info(name, array):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype) if hasattr(helper, "np_dtype_to_tensor_dtype") else onnx.mapping.NP_TYPE_TO_TENSOR_TYPE[array.dtype]
        return helper.make_tensor_value_info(name, kind, array.shape)

    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder + "/test_data_set_0")

    def write(results):
        out_info = [helper.make_tensor_value_info(n, 1, None) if results is None and n in typed else helper.make_empty_tensor_value_info(n) if results is None else info(n, results[n]) for n in node_out if n]
        graph = helper.make_graph([node], name, [info(n, x) for n, x in given.items()], out_info, held)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)])
        model.ir_version = 8
        onnx.save(model, folder + "/model.onnx")

    try:
        if expected is None:
            write(None)
            results = run_apart(folder + "/model.onnx", given)
        else:
            results = dict(zip([n for n in node_out if n], expected))
    except Exception as error:
        failed.append(f"{name}: {error}")
        shutil.rmtree(folder)
        return
    write(results)
    for i, x in enumerate(given.values()):
        save(f"{folder}/test_data_set_0/input_{i}.pb", x)
    for i, n in enumerate(n for n in node_out if n):
        save(f"{folder}/test_data_set_0/output_{i}.pb", results[n])


def run_apart(path, inputs):
    """In a process of its own: what ONNX Runtime does not check may end it."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            try:
                result = Runtime(LIBRARY).run(path, inputs)
            except Exception as error:
                result = str(error)
            pickle.dump(result, file)
            file.flush()
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            raise RuntimeError("ONNX Runtime crashed")
        file.seek(0)
        result = pickle.load(file)
    if isinstance(result, str):
        raise RuntimeError(result)
    return result


def erf(x):
    return np.vectorize(math.erf)(x.astype(np.float64))


def gelu(x):
    return (0.5 * x * (1 + erf(x / math.sqrt(2)))).astype(F32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def group_norm(x, gamma, beta, groups, eps=1e-5, silu=False):  # NHWC
    n, h, w, c = x.shape
    g = x.astype(np.float64).reshape(n, h * w, groups, c // groups)
    g = (g - g.mean((1, 3), keepdims=True)) / np.sqrt(g.var((1, 3), keepdims=True) + eps)
    y = g.reshape(x.shape) * gamma + beta
    return (y * sigmoid(y) if silu else y).astype(F32)


def attention(q, k, v, scale=None):  # heads in front
    a = (q @ k.swapaxes(-1, -2)).astype(np.float64) * (scale or 1 / math.sqrt(q.shape[-1]))
    a = np.exp(a - a.max(-1, keepdims=True))
    y = (a / a.sum(-1, keepdims=True)) @ v
    return y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1).astype(F32)


def heads(x, count):
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


# Activations and norms.
case("gelu", "Gelu", [f(3, 5, scale=2)])
case("bias_gelu", "BiasGelu", [f(2, 3, 8), f(8)])
case("fast_gelu", "FastGelu", [f(2, 3, 8)])
case("fast_gelu_bias", "FastGelu", [f(2, 3, 8), f(8)])
case("quick_gelu", "QuickGelu", [f(2, 7)])
case("quick_gelu_alpha", "QuickGelu", [f(2, 7)], alpha=0.7)
x, b, r = f(2, 4, 6), f(6), f(2, 4, 6)
case("bias_add", "BiasAdd", [x, b, r], expected=[x + b + r])
case("bias_split_gelu", "BiasSplitGelu", [x, b], expected=[(x + b)[..., :3] * gelu((x + b)[..., 3:])])
case("bias_dropout", "BiasDropout", [x, b, r], expected=[x + b + r])
case("skip_layer_norm", "SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8)], epsilon=1e-5)
case("skip_layer_norm_bias_sum", "SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)], [1, 0, 0, 1], epsilon=1e-5)
case("skip_layer_norm_broadcast", "SkipLayerNormalization", [f(2, 3, 8), f(3, 8), f(8), None, f(8)], [1, 0, 0, 1])
case("skip_rms_norm", "SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8)], [1, 0, 0, 1], epsilon=1e-6)
case("skip_rms_norm_bias", "SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8)], [1, 0, 0, 1], epsilon=1e-6)
case("simplified_layer_norm", "SimplifiedLayerNormalization", [f(2, 3, 8), f(8)], domain="", axis=-1, epsilon=1e-5, stash_type=1)
case("simplified_layer_norm_inverse", "SimplifiedLayerNormalization", [f(2, 3, 8), f(3, 8)], 2, domain="", axis=1, epsilon=1e-5, stash_type=1)
ids = random.integers(0, 9, (2, 4)).astype(I32)
kinds = random.integers(0, 2, (2, 4)).astype(I32)
case("embed_layer_norm", "EmbedLayerNormalization", [ids, kinds, f(9, 8), f(6, 8), f(2, 8), f(8), f(8), ints([[1, 1, 1, 0], [1, 1, 0, 0]])], 2)
case("embed_layer_norm_positions", "EmbedLayerNormalization", [ids, None, f(9, 8), f(6, 8), None, f(8), f(8), None, ints([[3, 1, 0, 5], [2, 2, 4, 0]])],
     [1, 1, 1], epsilon=1e-6)
x, skip, gamma, beta, b = f(2, 3, 3, 8), f(2, 8), f(8), f(8), f(8)
case("group_norm", "GroupNorm", [x, gamma, beta], expected=[group_norm(x, gamma, beta, 2)], groups=2, activation=0)
case("group_norm_silu", "GroupNorm", [x, gamma, beta], expected=[group_norm(x, gamma, beta, 4, 1e-3, True)], groups=4, activation=1, epsilon=1e-3)
total = x + skip[:, None, None, :] + b
case("skip_group_norm", "SkipGroupNorm", [x, gamma, beta, skip, b], 2, expected=[group_norm(total, gamma, beta, 2), total], groups=2, activation=0)

# Products.
case("fused_matmul", "FusedMatMul", [f(2, 3, 5), f(5, 4)], alpha=0.5)
case("fused_matmul_weight", "FusedMatMul", [f(2, 3, 5), f(4, 5)], constants=[1], transB=1)
case("fused_matmul_trans", "FusedMatMul", [f(2, 5, 3), f(2, 4, 5)], transA=1, transB=1, alpha=2.0)
case("fused_matmul_batch_a", "FusedMatMul", [f(3, 2, 5), f(2, 5, 4)], transBatchA=1)
case("fused_matmul_batch_both", "FusedMatMul", [f(5, 2, 3), f(4, 2, 5)], transBatchA=1, transBatchB=1, transA=1, transB=1)
case("transpose_matmul", "TransposeMatMul", [f(5, 3), f(5, 4)], transA=1)
case("fused_gemm_relu", "FusedGemm", [f(3, 5), f(5, 4), f(4)], activation="Relu", alpha=0.5, beta=2.0)
case("fused_gemm_leaky", "FusedGemm", [f(3, 5), f(4, 5), f(3, 4)], transB=1, activation="LeakyRelu", activation_alpha=0.1)
case("fused_gemm_tanh", "FusedGemm", [f(3, 5), f(5, 4)], activation="Tanh")
case("fused_gemm_hard_sigmoid", "FusedGemm", [f(3, 5), f(5, 4)], activation="HardSigmoid", activation_alpha=0.3, activation_beta=0.4)
case("fused_conv_relu", "FusedConv", [f(1, 3, 6, 5), f(4, 3, 3, 3), f(4)], activation="Relu", pads=[1, 1, 1, 1])
case("fused_conv_sum", "FusedConv", [f(1, 4, 5, 5), f(4, 2, 3, 3), f(4), f(1, 4, 3, 3)], activation="Relu", group=2)
case("fused_conv_clip", "FusedConv", [f(1, 3, 6, 5), f(2, 3, 2, 2)], activation="Clip", activation_params=[-0.5, 1.5], strides=[2, 1])
case("fused_conv_leaky", "FusedConv", [f(1, 3, 6), f(2, 3, 2)], activation="LeakyRelu", activation_params=[0.2])
x, w, b = f(2, 6), f(6, 4), f(4)
z = (x @ w + b).astype(np.float64)
case("gemm_fast_gelu", "GemmFastGelu", [x, w, b], expected=[(0.5 * z * (1 + np.tanh(0.7978845608 * (z + 0.044715 * z**3)))).astype(F32)])

# Helpers.
case("trilu", "Trilu", [f(2, 4, 5), np.array(1, I64)], upper=0)
case("expand_dims", "ExpandDims", [f(2, 3), ints(-2)], constants=[1])
case("range", "Range", [s(1.0), s(6.0)], constants=[0, 1])
case("range_step", "Range", [ints(10), ints(1), ints(-3)], constants=[0, 1, 2])
case("pad", "Pad", [f(2, 3), np.array([0, 1, 1, 0], I64), s(0.5)], constants=[1])
case("gather_nd", "GatherND", [f(3, 4, 2), np.array([[0, 1], [2, 3]], I64)])
case("torch_embedding", "TorchEmbedding", [x, np.array([1, 0, 1], I64)], expected=[x[[1, 0, 1]]])

# Attention.
H, D, B, T = 2, 4, 2, 3
C = H * D
x, w, b = f(B, T, 6), f(6, 3 * C), f(3 * C)
case("attention", "Attention", [x, w, b], num_heads=H)
case("attention_no_bias_scale", "Attention", [x, w, None], expected=[attention(*(heads(p, H) for p in np.split(x @ w, 3, -1)), 0.3)], num_heads=H, scale=0.3)
case("attention_causal", "Attention", [x, w, b], num_heads=H, unidirectional=1)
case("attention_mask", "Attention", [x, w, b, ints([[1, 1, 0], [1, 1, 1]])], constants=[1, 2], num_heads=H)
case("attention_mask_filter", "Attention", [x, w, b, ints([[1, 1, 0], [0, 0, 0]])], num_heads=H, mask_filter_value=-2.0)
case("attention_ends", "Attention", [x, w, b, ints([2, 3])], num_heads=H)
case("attention_ends_starts", "Attention", [x, w, b, ints([2, 3, 0, 1])], num_heads=H)
case("attention_mask_3d", "Attention", [x, w, b, random.integers(0, 2, (B, T, T)).astype(I32)], num_heads=H)
case("attention_mask_3d_causal", "Attention", [x, w, b, random.integers(0, 2, (B, T, T)).astype(I32)], num_heads=H, unidirectional=1)
case("attention_bias", "Attention", [x, w, b, None, None, f(1, H, T, T)], num_heads=H)
case("attention_past", "Attention", [x, w, b, None, f(2, B, H, 2, D)], 2, num_heads=H, unidirectional=1)
case("attention_past_mask", "Attention", [x, w, b, ints([[1, 1, 1, 0, 1], [0, 1, 1, 1, 1]]), f(2, B, H, 2, D)], 2, num_heads=H)
case("attention_present", "Attention", [x, w, b], 2, num_heads=H)
case("attention_value_size", "Attention", [x, f(6, 22), f(22)], num_heads=H, qkv_hidden_sizes=[8, 8, 6])
qi, k, v = f(B, T, C), f(B, 5, C), f(B, 5, C)
case("mha", "MultiHeadAttention", [qi, k, v], num_heads=H)
case("mha_bias", "MultiHeadAttention", [qi, k, v, f(3 * C)], num_heads=H)
case("mha_value_size", "MultiHeadAttention", [qi, k, f(B, 5, 6), f(2 * C + 6)], num_heads=H)
case("mha_mask_lengths", "MultiHeadAttention", [qi, k, v, None, ints([3, 5])], num_heads=H)
case("mha_mask_2d", "MultiHeadAttention", [qi, k, v, f(3 * C), ints([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])], num_heads=H, scale=0.4)
case("mha_mask_3d", "MultiHeadAttention", [qi, k, v, None, random.integers(0, 2, (B, T, 5)).astype(I32)], num_heads=H)
case("mha_attention_bias", "MultiHeadAttention", [qi, k, v, None, None, f(B, 1, T, 5)], num_heads=H)
kv, qkv, b = f(B, 5, H, 2, D), f(B, T, H, 3, D), f(3 * C)
front = (0, 2, 1, 3)
case("mha_packed_kv", "MultiHeadAttention", [qi, kv], expected=[attention(heads(qi, H), kv[..., 0, :].transpose(front), kv[..., 1, :].transpose(front))], num_heads=H)
case("mha_packed_qkv", "MultiHeadAttention", [qkv], expected=[attention(*(qkv[..., i, :].transpose(front) for i in range(3)))], num_heads=H)
case("mha_packed_qkv_bias", "MultiHeadAttention", [qkv, None, None, b],
     expected=[attention(*((qkv[..., i, :] + b.reshape(3, H, D)[i]).transpose(front) for i in range(3)))], num_heads=H)
case("mha_cross_past", "MultiHeadAttention", [qi, f(B, H, 5, D), f(B, H, 5, D)], num_heads=H)
case("mha_cross_past_bias", "MultiHeadAttention", [qi, f(B, H, 5, D), f(B, H, 5, D), f(3 * C)], num_heads=H)
case("mha_past", "MultiHeadAttention", [qi, f(B, T, C), f(B, T, C), f(3 * C), None, None, f(B, H, 2, D), f(B, H, 2, D)], 3, num_heads=H)
case("mha_causal_past", "MultiHeadAttention", [qi, f(B, T, C), f(B, T, C), None, None, None, f(B, H, 2, D), f(B, H, 2, D)], 3, num_heads=H, unidirectional=1)
case("mha_qk", "MultiHeadAttention", [qi, k, v, None, ints([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])], [1, 0, 0, 1], typed=["y3"], num_heads=H)
one, b, past_k, past_v = [f(B, 1, C) for _ in range(3)], f(3 * C), f(B, H, 2, D), f(B, H, 2, D)
part = [heads(x + b[C * i:C * i + C], H) for i, x in enumerate(one)]
k, v = np.concatenate([past_k, part[1]], 2), np.concatenate([past_v, part[2]], 2)
case("dmmha", "DecoderMaskedMultiHeadAttention", one + [None, None, past_k, past_v, None, None, None, b], 3, expected=[attention(part[0], k, v), k, v], num_heads=H)

# Grouped queries with a cache.
G, D, H = 2, 16, 4
cos, sin = f(12, D // 2), f(12, D // 2)


def gqa(name, batch, rows, past, lengths, total, inputs=None, outputs=3, packed=False, capacity=None, **attributes):
    x = [f(batch, rows, (H + 2 * G) * D), None, None] if packed else [f(batch, rows, H * D), f(batch, rows, G * D), f(batch, rows, G * D)]
    cache = [f(batch, G, past, D), f(batch, G, past, D)] if past is not None else [None, None]
    more = inputs or []
    case(name, "GroupQueryAttention", x + cache + [ints(lengths), ints(total)] + more, outputs, constants=[6], num_heads=H, kv_num_heads=G, **attributes)


gqa("gqa_prompt", 2, 4, None, [3, 3], 4)
gqa("gqa_packed", 1, 3, None, [2], 3, packed=True, scale=0.2)
gqa("gqa_step", 1, 1, 4, [4], 5)
gqa("gqa_chunk", 1, 2, 4, [5], 6)
gqa("gqa_step_batch", 2, 1, 4, [4, 2], 5)
gqa("gqa_capacity", 2, 1, 8, [4, 2], 5)
gqa("gqa_capacity_prompt", 1, 3, 8, [2], 3)
gqa("gqa_rotary", 1, 3, None, [2], 3, [cos, sin], do_rotary=1)
gqa("gqa_rotary_step", 2, 1, 4, [4, 3], 5, [cos, sin], do_rotary=1)
gqa("gqa_rotary_interleaved", 1, 2, 3, [4], 5, [cos, sin], do_rotary=1, rotary_interleaved=1)
gqa("gqa_rotary_packed", 2, 3, None, [2, 2], 3, [cos, sin], packed=True, do_rotary=1)
gqa("gqa_positions", 1, 3, None, [2], 3, [cos, sin, np.array([[0, 1, 2]], I64)], do_rotary=1)
gqa("gqa_window", 1, 6, None, [5], 6, local_window_size=2)
gqa("gqa_window_step", 1, 1, 5, [5], 6, local_window_size=3)
gqa("gqa_softcap", 1, 4, None, [3], 4, softcap=2.0)
gqa("gqa_smooth", 1, 4, None, [3], 4, smooth_softmax=1)
gqa("gqa_sink", 1, 4, None, [3], 4, [None, None, None, None, f(H)])
gqa("gqa_attention_bias", 1, 4, None, [3], 4, [None, None, None, f(1, H, 4, 4)])
gqa("gqa_qk_scores", 1, 3, None, [2], 3, outputs=4, qk_output=1)
gqa("gqa_qk_weights", 1, 3, None, [2], 3, outputs=4, qk_output=2)

# Rotary embedding.
case("rotary", "RotaryEmbedding", [f(2, 3, 32), np.array([[0, 1, 2], [4, 5, 6]], I64), cos, sin])
case("rotary_offset", "RotaryEmbedding", [f(2, 3, 32), np.array([3], I64), cos, sin])
case("rotary_4d", "RotaryEmbedding", [f(2, 2, 3, 16), np.array([[0, 1, 2], [4, 5, 6]], I64), cos, sin])
case("rotary_interleaved", "RotaryEmbedding", [f(1, 3, 32), np.array([[0, 1, 2]], I64), cos, sin], interleaved=1)
case("rotary_partial", "RotaryEmbedding", [f(1, 3, 24), np.array([[0, 1, 2]], I64), cos[:, :4].copy(), sin[:, :4].copy()], num_heads=2, rotary_embedding_dim=8)

# Quantized products.
for kind, dtype in (("u8", U8), ("i8", I8)):
    w, zero = q(12, 6, dtype=dtype), q(6, dtype=dtype)
    case(f"matmul_integer_to_float_{kind}", "MatMulIntegerToFloat",
         [q(3, 12), w, s(0.021), f(6, scale=0.01), s(113, U8), zero, f(6)], constants=[1, 3, 5, 6])
case("matmul_integer_to_float_scalar", "MatMulIntegerToFloat", [q(2, 3, 12), q(12, 6, dtype=I8), s(0.021), s(0.013), s(113, U8)])
case("dynamic_quantize_matmul", "DynamicQuantizeMatMul", [f(3, 12), q(12, 6, dtype=I8), f(6, scale=0.01), None, f(6)], constants=[1, 2, 4])
case("dynamic_quantize_matmul_zero", "DynamicQuantizeMatMul", [f(2, 3, 12), q(12, 6), s(0.017), s(120, U8)], constants=[1, 2, 3])
case("matmul_integer_16", "MatMulInteger16", [q(3, 5, dtype=np.int16), q(5, 4, dtype=np.int16)])
a, b = q(3, 4), q(4)
case("mul_integer", "MulInteger", [a, s(3, U8), b, s(250, U8)], expected=[(a.astype(I32) - 3) * (b.astype(I32) - 250)])
case("qgemm_float", "QGemm", [q(3, 8), s(0.02), s(7, U8), q(8, 4, dtype=I8), s(0.013), s(-3, I8), ints([5, -90, 1000, 3])], alpha=0.5)
case("qgemm_quantized", "QGemm", [q(3, 8), s(0.02), s(7, U8), q(4, 8, dtype=I8), f(4, scale=0.01) + F32(0.05), np.zeros(4, I8), None, s(0.37), s(120, U8)], transB=1)
case("qattention", "QAttention", [q(2, 3, 12), q(12, 24, dtype=I8), f(24), s(0.011), s(0.013), None, s(131, U8), s(0, I8)], constants=[1, 2, 3, 4], num_heads=2)
case("qattention_columns", "QAttention", [q(2, 3, 12), q(12, 24, dtype=I8), f(24), s(0.011), np.abs(f(24, scale=0.01)) + F32(0.001), ints([3, 2]), s(131, U8), np.zeros(24, I8)],
     num_heads=2)
case("qattention_past", "QAttention", [q(2, 3, 12), q(12, 24), f(24), s(0.011), s(0.013), None, s(131, U8), s(90, U8), f(2, 2, 2, 2, 4)], 2, num_heads=2, unidirectional=1)


def blocks(name, k, n, block, bits=4, zero=None, bias=False, rows=(3,), dtype=F32, **attributes):
    count = (k + block - 1) // block
    inputs = [f(*rows, k, dtype=dtype), q(n, count, block * bits // 8), np.abs(f(n, count, scale=0.1, dtype=dtype)) + dtype(0.01)]
    inputs.append(q(n, (count * bits + 7) // 8) if zero == "packed" else f(n, count, scale=3, dtype=dtype) + dtype(8) if zero == "float" else None)
    inputs += [None, f(n, dtype=dtype) if bias else None]
    while inputs[-1] is None:
        inputs.pop()
    case(name, "MatMulNBits", inputs, constants=[i for i in range(1, len(inputs)) if inputs[i] is not None], K=k, N=n, bits=bits, block_size=block, **attributes)


blocks("nbits_16", 32, 5, 16)
blocks("nbits_32_zero", 64, 8, 32, zero="packed", rows=(2, 3))
blocks("nbits_64_bias", 128, 6, 64, bias=True)
blocks("nbits_128_odd", 160, 5, 128, zero="packed")
blocks("nbits_256", 256, 3, 256, rows=(1,))
blocks("nbits_short", 40, 4, 32)
blocks("nbits_float_zero", 64, 4, 32, zero="float")
blocks("nbits_8", 64, 4, 32, bits=8, zero="packed")
blocks("nbits_2", 64, 4, 32, bits=2)
for kind in (0, 1):
    case(f"bnb4_{kind}", "MatMulBnb4", [f(3, 32), q(32 * 6 // 2), np.abs(f(32 * 6 // 16)) + F32(0.1)], constants=[1, 2], K=32, N=6, block_size=16, quant_type=kind)

# Dequantized, computed, quantized.
case("quantize", "QuantizeLinear", [f(3, 4), s(0.023), s(120, U8)])
case("quantize_axis", "QuantizeLinear", [f(3, 4), np.abs(f(4, scale=0.02)) + F32(0.003), q(4, dtype=I8)], axis=1)
case("dequantize", "DequantizeLinear", [q(3, 4), s(0.023), s(120, U8)])
case("dequantize_axis", "DequantizeLinear", [q(3, 4, dtype=I8), f(3), q(3, dtype=I8)], axis=0)
case("dequantize_i32", "DequantizeLinear", [ints([[5, -70000]]), s(0.001)])
case("qlinear_add", "QLinearAdd", [q(2, 5), s(0.021), s(7, U8), q(5), s(0.037), s(131, U8), s(0.0531), s(99, U8)])
case("qlinear_add_i8", "QLinearAdd", [q(2, 5, dtype=I8), s(0.021), s(0, I8), q(2, 5, dtype=I8), s(0.037), s(-13, I8), s(0.0531), s(9, I8)])
case("qlinear_mul", "QLinearMul", [q(2, 5), s(0.021), s(7, U8), q(2, 5), s(0.037), s(131, U8), s(0.0531), s(99, U8)])
case("qlinear_sigmoid", "QLinearSigmoid", [q(2, 9), s(0.031), s(128, U8), s(0.00391), s(0, U8)])
case("qlinear_leaky_relu", "QLinearLeakyRelu", [q(2, 9), s(0.031), s(128, U8), s(0.0271), s(91, U8)], alpha=0.13)
x = q(2, 9)
e = np.exp((x.astype(np.float64) - 128) * 0.031)
y = np.clip(np.rint(e / e.sum(-1, keepdims=True) / 0.00391), 0, 255).astype(U8)
case("qlinear_softmax", "QLinearSoftmax", [x, s(0.031), s(128, U8), s(0.00391), s(0, U8)], expected=[y], axis=-1, softmax_opset=13)
case("qlinear_average_pool", "QLinearAveragePool", [q(1, 3, 6, 6), s(0.031), s(128, U8), s(0.0271), s(91, U8)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0])
case("qlinear_average_pool_last", "QLinearAveragePool", [q(1, 6, 6, 4), s(0.031), s(128, U8), s(0.0271), s(91, U8)], kernel_shape=[2, 2], channels_last=1)
case("qlinear_global_average_pool", "QLinearGlobalAveragePool", [q(2, 3, 4, 5), s(0.031), s(128, U8), s(0.0171), s(91, U8)])
case("qlinear_concat", "QLinearConcat", [s(0.033), s(101, U8), q(2, 3), s(0.021), s(7, U8), q(2, 4), s(0.033), s(101, U8)], axis=1)
x, y, c = q(2, 5), q(2, 5), random.integers(0, 2, (2, 5)).astype(np.bool_)
case("qlinear_where", "QLinearWhere", [c, x, s(0.021), s(7, U8), y, s(0.037), s(131, U8), s(0.0531), s(99, U8)])
case("qlinear_conv", "QLinearConv", [q(1, 3, 6, 6), s(0.031), s(128, U8), q(4, 3, 3, 3, dtype=I8), np.abs(f(4, scale=0.01)) + F32(0.004), np.zeros(4, I8), s(0.171), s(91, U8),
                                     ints([100, -2000, 0, 7])], constants=[3, 4, 5, 8], pads=[1, 1, 1, 1])

for line in failed:
    print("not written:", line)
