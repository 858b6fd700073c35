#!/usr/bin/env python3
"""Exports small transformer models with torch's ONNX exporter, at several opsets, and compares our outputs with
torch's: max|a - b| <= 1e-4 max|b|, as for the models of full size.

usage: torch_test.py TESSERA [unittest arguments]     Skips where torch is not installed.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

try:
    import numpy as np
    import torch
    import torch_models
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

TESSERA = ""
OPSETS = (11, 13, 14, 17)
TOLERANCE = 1e-4


class Exports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_model(self, model, inputs):
        command = [TESSERA, "run", model, "--output-dir", self.folder, "--json"]
        for name, tensor in inputs.items():
            file = os.path.join(self.folder, name + ".npy")
            np.save(file, tensor.numpy())
            command += ["--input", f"{name}={file}"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [np.load(output["file"]) for output in json.loads(result.stdout)["outputs"]]

    def compare(self, name, opset):
        make, example, axes, cases = torch_models.MODELS[name]
        torch.manual_seed(3)
        module = make().eval()
        file = os.path.join(self.folder, "model.onnx")
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, tuple(example.values()), file, input_names=list(example), dynamic_axes=axes,
                              opset_version=opset)
            for inputs in cases:
                wanted = module(*inputs.values())
                wanted = wanted if isinstance(wanted, tuple) else (wanted,)
                got = self.run_model(file, inputs)
                self.assertEqual(len(got), len(wanted))
                for a, b in zip(got, wanted):
                    b = b.numpy()
                    self.assertEqual(a.shape, b.shape)
                    error = np.abs(a - b).max() / np.abs(b).max()
                    shapes = {key: list(tensor.shape) for key, tensor in inputs.items()}
                    self.assertLessEqual(error, TOLERANCE, f"{name} at opset {opset}, {shapes}")


def add_tests():
    for name in torch_models.MODELS:
        for opset in OPSETS:
            if opset < torch_models.FIRST_OPSETS.get(name, 0):
                continue

            def test(self, name=name, opset=opset):
                self.compare(name, opset)
            setattr(Exports, f"test_{name}_opset{opset}", test)


if __name__ == "__main__":
    TESSERA = sys.argv.pop(1)
    add_tests()
    unittest.main(argv=sys.argv[:1] + sys.argv[1:])
