#!/usr/bin/env python3
"""Options of compilations, as flags and as a JSON file: each has an effect that shows.

usage: options_test.py TESSERA [unittest arguments]
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import models

TESSERA = ""
SIZES = ("--dim", "batch=2", "--dim", "seq=5")


def call(*arguments):
    return subprocess.run([TESSERA, *arguments], capture_output=True, text=True, timeout=120)


class Options(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.bert = cls.write("bert.onnx", models.bert())
        cls.conv = cls.write("conv.onnx", models.conv_net())

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def write(cls, name, data):
        path = os.path.join(cls.temporary.name, name)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        return path

    def report(self, *arguments, model=None):
        """What `compile --report` says."""
        result = call("compile", model or self.bert, "--report", "--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout.splitlines()[-1])

    def both(self, options, *flags, model=None):
        """The report of flags, after checking that a file says the same."""
        by_flags = self.report(*flags, model=model)
        by_file = self.report("--options", self.write("options.json", json.dumps(options)), model=model)
        for key in ("rules", "nodes", "kernels"):
            self.assertEqual(by_flags[key], by_file[key], key)
        self.assertEqual([s["pass"] for s in by_flags["stages"]], [s["pass"] for s in by_file["stages"]])
        return by_flags

    def test_level(self):
        kernels = [self.both({"optimisation": level}, f"-O{level}", model=self.conv)["kernels"] for level in range(3)]
        self.assertGreater(kernels[0], kernels[1])
        self.assertGreater(kernels[1], kernels[2])

    def test_passes_by_name_and_order(self):
        answer = self.both({"passes": ["dce", "cse", "fuse"]}, "--passes", "dce,cse,fuse")
        self.assertEqual([stage["pass"] for stage in answer["stages"]], ["dce", "cse", "fuse"])
        self.assertEqual(set(answer["rules"]) - {"cse", "gelu", "layer_norm", "linear", "attention_of_softmax", "dead"}, set())
        other = self.report("--passes", "fuse,cse")
        self.assertEqual([stage["pass"] for stage in other["stages"]], ["fuse", "cse"])
        self.assertLess(other["rules"].get("cse", 0), answer["rules"]["cse"])  # fused first, less is spelled twice
        self.assertEqual(call("verify", self.bert, *SIZES, "--passes", "fuse,cse,identity,attention").returncode, 0)
        wrong = call("compile", self.bert, "--report", "--passes", "fly")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("'fly'", wrong.stderr)
        self.assertIn("fuse", wrong.stderr)

    def test_disable(self):
        self.assertIn("gelu", self.report()["rules"])
        answer = self.both({"disable": ["gelu", "cse"]}, "--disable", "gelu", "--disable", "cse")
        self.assertNotIn("gelu", answer["rules"])
        self.assertNotIn("cse", [stage["pass"] for stage in answer["stages"]])

    def test_stop_after(self):
        answer = self.both({"stop_after": 3}, "--stop-after", "3")
        self.assertEqual(sum(answer["rules"].values()), 3)

    def test_strict_and_precision(self):
        loose, strict = self.report(), self.both({"strict": True}, "--strict")
        self.assertIn("layer_norm", loose["rules"])
        self.assertNotIn("layer_norm", strict["rules"])
        self.assertEqual(self.both({"precision": "bf16"}, "--precision", "bf16")["rules"]["bf16"], 12)
        rules = [{"name": "l0/up/*", "precision": "f16"}]
        answer = self.both({"precision": rules}, "--precision", self.write("precision.json", json.dumps(rules)))
        self.assertEqual(answer["rules"]["f16"], 1)
        wrong = call("compile", self.bert, "--report", "--precision", "fp8")
        self.assertEqual(wrong.returncode, 2)
        for word in ("fp8", "int8-dynamic", "no file"):
            self.assertIn(word, wrong.stderr)
        # A layer is each of the nodes that it does the work of: its product as well as its bias.
        for kind in ("MatMul", "Add", "linear"):
            rules = [{"precision": "bf16"}, {"kind": kind, "precision": "keep"}]
            answer = self.report("--precision", self.write("precision.json", json.dumps(rules)))
            self.assertNotIn("bf16", answer["rules"], kind)

    def test_dims(self):
        ranged, fixed = self.report(), self.both({"dims": {"batch": 2, "seq": 5}}, *SIZES)
        self.assertIsNone(ranged["after"]["peak_bytes"])
        self.assertGreater(fixed["after"]["peak_bytes"], 0)
        for text, sizes in (("1..4", "1..4"), ("bucket:4,8", [4, 8])):
            options = self.write("options.json", json.dumps({"dims": {"seq": sizes}}))
            for arguments in (("--dim", f"seq={text}"), ("--options", options)):
                result = call("run", self.bert, *arguments, "--input", "input_ids=random:1,6", "--input",
                              "attention_mask=random:1,6")
                self.assertEqual(result.returncode, 3)
                self.assertTrue(result.stderr.startswith("E0316"), result.stderr)
                self.assertIn("'seq' is 6", result.stderr)
        result = call("run", self.bert, "--dim", "time=3")
        self.assertEqual(result.returncode, 3)
        for word in ("'time'", "'batch'", "'seq'"):
            self.assertIn(word, result.stderr)
        for wrong in ("seq=bucket:", "seq=bucket:4,x", "seq=4..", "seq=8..4", "seq"):
            self.assertEqual(call("run", self.bert, "--dim", wrong).returncode, 2, wrong)

    def test_folding(self):
        self.assertIn("constant", self.report(model=self.conv)["rules"])
        answer = self.both({"fold_elements": 0}, "--fold-limit", "0", model=self.conv)
        self.assertNotIn("constant", answer["rules"])

    def test_memory(self):
        def arena(*arguments):
            result = call("bench", self.bert, *SIZES, "--runs", "1", "--json", *arguments)
            self.assertEqual(result.returncode, 0, result.stderr)
            return json.loads(result.stdout.splitlines()[-1])["arena_bytes"]
        plain = arena()
        for arguments in (("--no-memory-reuse",),
                          ("--options", self.write("options.json", json.dumps({"reuse_memory": False})))):
            self.assertGreater(arena(*arguments), 2 * plain)

    def test_rules(self):
        rules = self.write("own.rules", """rule "erf_by_tanh" {
  class approx
  graph "left" {
    dim a dim b dim c
    in %x "x": f32[a, b, c]
    %1: f32[a, b, c] = erf(%x)
    out %1
  }
  graph "right" {
    dim a dim b dim c
    in %x "x": f32[a, b, c]
    %1: f32[] = constant [1.2]
    %2: f32[a, b, c] = mul(%x, %1)
    %3: f32[a, b, c] = tanh(%2)
    out %3
  }
}
""")
        self.assertNotIn("erf_by_tanh", self.report("--rules", rules)["rules"])
        answer = self.both({"rules": rules, "approximate": True}, "--rules", rules, "--approximate")
        self.assertEqual(answer["rules"]["erf_by_tanh"], 2)

    def test_flags_go_over_the_file(self):
        options = self.write("options.json", json.dumps({"optimisation": 0, "disable": ["cse"]}))
        answer = self.report("-O2", "--options", options)
        self.assertIn("fuse", [stage["pass"] for stage in answer["stages"]])
        self.assertNotIn("cse", [stage["pass"] for stage in answer["stages"]])

    def test_wrong_files(self):
        for text, says in (("", "JSON"), ("[1]", "array"), ('{"optimization": 2}', "optimisation"),
                           ('{"optimisation": 7}', "from 0 to 3"), ('{"strict": 1}', "true or false"),
                           ('{"passes": "dce"}', "a list"), ('{"dims": {"seq": "x"}}', "'x'")):
            result = call("compile", self.bert, "--report", "--options", self.write("options.json", text))
            self.assertEqual(result.returncode, 2, text)
            self.assertIn("E0801", result.stderr)
            self.assertIn(says, result.stderr)
        self.assertEqual(call("compile", self.bert, "--report", "--options", "/nowhere/x.json").returncode, 3)


if __name__ == "__main__":
    TESSERA = sys.argv.pop(1)
    unittest.main(argv=sys.argv[:1] + sys.argv[1:])
