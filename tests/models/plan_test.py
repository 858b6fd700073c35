#!/usr/bin/env python3
"""Counts the kernels of exported transformer layers: what `tessera inspect --plan` lists for models of one and of two
layers, at several opsets. The difference is a layer's.

usage: plan_test.py TESSERA [unittest arguments]     Skips where torch is not installed.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

try:
    import torch
    import torch_models
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

TESSERA = ""
# model -> the most kernels of a layer
LIMITS = {"bert": 6, "whisper_encoder": 6}
# model of one block -> its kernels, those that come once a model left out: patches, and tables of positions
BLOCKS = {
    "gpt2": ["layer_norm", "linear", "concat", "concat", "attention", "linear+add+layer_norm", "linear+gelu_tanh",
             "linear+add"],
    "llama": ["rms_norm", "linear", "rotary", "attention", "linear+add+rms_norm", "linear+silu+mul",
              "linear+add"],
    "vit": ["add+layer_norm", "linear", "attention", "linear+add+layer_norm", "linear+gelu", "linear+add"],
    "conv_norm": ["conv+silu"],
}
ONCE = {"conv", "copy", "concat", "cast", "mul", "cos", "sin"}
# Kernels that no layer may be left with: formulas that composites stand for.
PRIMITIVES = {"erf", "softmax", "reduce_sum", "reduce_max", "sqrt", "rsqrt", "pow", "tanh", "exp"}


def kernels(name, opset, **options):
    make, example, axes, _ = torch_models.MODELS[name]
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = os.path.join(folder, "model.onnx")
        torch.onnx.export(make(**options).eval(), tuple(example.values()), file, input_names=list(example),
                          dynamic_axes=axes, opset_version=opset)
        out = subprocess.run([TESSERA, "inspect", file, "--plan", "--json"], check=True, capture_output=True, text=True,
                             timeout=120).stdout
    return json.loads(out.strip().splitlines()[-1])["kernels"]


class Plans(unittest.TestCase):
    def layer(self, name, opset):
        one, two = (kernels(name, opset, layers=n) for n in (1, 2))
        self.assertLessEqual(len(two) - len(one), LIMITS[name], [line["op"] for line in two])
        self.assertFalse(PRIMITIVES & {line["op"] for line in two}, [line["op"] for line in two])
        covered = {node for line in two for node in line["covers"]}
        self.assertTrue(any("MatMul" in node for node in covered))
        self.assertTrue(all(line["covers"] for line in two if line["op"] != "copy"))

    def test_norms_and_activations_are_found_in_every_family(self):
        for name in ("bert", "vit", "conv_norm"):
            ops = [line["op"] for line in kernels(name, 13)]
            self.assertFalse(PRIMITIVES & set(ops), f"{name}: {ops}")


    def block(self, name, opset):
        ops = [line["op"] for line in kernels(name, opset)]
        wanted = BLOCKS[name]
        self.assertEqual(ops[-len(wanted):], wanted)
        self.assertLessEqual(set(ops[:-len(wanted)]), ONCE)


def add_tests():
    for name in LIMITS:
        for opset in (11, 13, 14, 17):
            def test(self, name=name, opset=opset):
                self.layer(name, opset)
            setattr(Plans, f"test_{name}_opset{opset}", test)
    for name in BLOCKS:
        for opset in (11, 13, 14, 17):
            def test(self, name=name, opset=opset):
                self.block(name, opset)
            setattr(Plans, f"test_{name}_opset{opset}", test)


if __name__ == "__main__":
    TESSERA = sys.argv.pop(1)
    add_tests()
    unittest.main(argv=sys.argv[:1] + sys.argv[1:])
