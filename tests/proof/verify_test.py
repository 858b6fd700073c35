#!/usr/bin/env python3
"""Faults planted in rewrites, passes and kernels: `tessera verify` has to find and name each.

usage: verify_test.py TESSERA [unittest arguments]
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import models

TESSERA = ""
BERT, CONV, GATED = ("bert", "batch=2", "seq=5"), ("conv",), ("gated", "batch=2", "seq=3")

# fault, model, pass, rule, part of the node's name, part of the equation
FAULTS = [
    ("rule:gelu", BERT, "fuse", "gelu", "l1/gelu/", "erf"),
    ("rule:gelu:2", BERT, "fuse", "gelu", "l0/gelu/", "erf"),
    ("rule:layer_norm:3", BERT, "fuse", "layer_norm", "l0/ln2/", "sqrt"),
    ("rule:linear:1:drop", BERT, "fuse", "linear", "l1/", "dot"),
    ("rule:attention", BERT, "attention", "attention", "/att/", "softmax"),
    ("rule:cse", BERT, "cse", "cse", "", "="),
    ("rule:channel_scale", CONV, "scales", "channel_scale", "c0/Norm", "conv"),
    ("rule:hard_swish", CONV, "fuse", "hard_swish", "hs/", "hard_swish"),
    ("rule:silu", CONV, "fuse", "silu", "silu/Mul", "sigmoid"),
    ("rule:times_one", CONV, "identity", "times_one", "times_one", "* 1"),
    ("rule:constant:1", CONV, "fold", "constant", "", "="),
    ("rule:rms_norm", GATED, "fuse", "rms_norm", "rms/", "rms_norm"),
    ("pass:identity2", BERT, "identity2", "view_of_view", "l0/att/", "view"),
    ("kernel:attention_f32", BERT, "kernels", "attention_f32", "l0/att/", "attention"),
    ("kernel:layer_norm_f32", BERT, "kernels", "layer_norm_f32", "ln/", "layer_norm"),
]


class Verify(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        for name, data in (("bert", models.bert()), ("conv", models.conv_net()), ("gated", models.gated())):
            with open(cls.file(name), "wb") as file:
                file.write(data)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def file(cls, name):
        return os.path.join(cls.temporary.name, name + ".onnx")

    def call(self, model, *arguments, fault=""):
        dims = [word for dim in model[1:] for word in ("--dim", dim)]
        environment = {**os.environ, "TESSERA_INJECT_FAULT": fault}
        return subprocess.run([TESSERA, "verify", self.file(model[0]), *dims, *arguments], capture_output=True,
                              text=True, timeout=120, env=environment)

    def verify(self, model, *arguments, fault="", exit_code=1):
        result = self.call(model, "--json", *arguments, fault=fault)
        self.assertEqual(result.returncode, exit_code, result.stdout + result.stderr)
        return json.loads(result.stdout.splitlines()[-1])

    def test_sound_models_agree_in_every_named_value(self):
        for model in (BERT, CONV, GATED):
            for level in range(4):
                answer = self.verify(model, f"-O{level}", exit_code=0)
                self.assertTrue(answer["ok"])
                self.assertIsNone(answer["culprit"])
                self.assertTrue(all(value["ok"] for value in answer["values"]))
                self.assertLess(answer["worst"]["relative"], 1e-4)
                self.assertGreater(answer["worst"]["cosine"], 0.999999)
        on_the_way = [value["value"] for value in self.verify(BERT, exit_code=0)["values"] if not value["output"]]
        self.assertIn("l0/ln1/Shift_out", on_the_way)
        self.assertIn("l1/gelu/Half_out", on_the_way)

    def test_each_planted_fault_is_named(self):
        for fault, model, stage, rule, node, equation in FAULTS:
            with self.subTest(fault=fault):
                answer = self.verify(model, fault=fault)
                self.assertFalse(answer["ok"])
                culprit = answer["culprit"]
                self.assertIsNotNone(culprit)
                self.assertEqual((culprit["pass"], culprit["rule"]), (stage, rule))
                self.assertIn(node, culprit["node"])
                self.assertIn(equation, culprit["equation"])
                relative = answer["worst"]["relative"]  # null: infinite
                self.assertTrue(relative is None or relative > 1e-4)

    def test_kernels_name_the_nodes_that_they_cover(self):
        culprit = self.verify(BERT, fault="kernel:attention_f32")["culprit"]
        self.assertIn("l0/att/Context", culprit["covers"])
        self.assertTrue(all(name.startswith("l0/att/") or name.startswith("mask/") for name in culprit["covers"]))

    def test_a_disabled_rule_is_not_at_fault(self):
        self.assertTrue(self.verify(BERT, "--disable", "gelu", fault="rule:gelu", exit_code=0)["ok"])

    def test_plain_form_names_the_culprit(self):
        result = self.call(BERT, fault="rule:gelu:2")
        self.assertEqual(result.returncode, 1)
        self.assertIn("DIFFERS output l1/ln2/Shift_out", result.stdout)
        self.assertIn("the first value that differs is 'l0/gelu/Half_out'", result.stdout)
        self.assertRegex(result.stdout, r"pass 'fuse', rule 'gelu', rewrite \d+ is at fault, at node 'l0/gelu/Half'")
        self.assertIn("* 1.25\n", result.stdout)

    def test_tolerance_decides(self):
        self.assertTrue(self.verify(CONV, "--tolerance", "0.9", fault="rule:silu", exit_code=0)["ok"])
        self.verify(CONV, "--tolerance", "1e-12", exit_code=1)

    def test_faults_that_cannot_be_planted_are_said(self):
        for fault in ("gelu", "rule:", "rule:gelu:bend", "pass:none", "kernel:none"):
            result = self.call(BERT, fault=fault)
            self.assertEqual(result.returncode, 2, fault)
            self.assertIn("E0801", result.stderr)


if __name__ == "__main__":
    TESSERA = sys.argv.pop(1)
    unittest.main(argv=sys.argv[:1] + sys.argv[1:])
