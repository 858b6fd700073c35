#!/usr/bin/env python3
"""The commands on texts: generate, perplexity and quantize.

usage: text_test.py TESSERA SHARED_DATA [unittest arguments]; tests of a trained model skip where SHARED_DATA lacks it.
"""
import json
import os
import sys
import unittest

import cli_test
import onnx_writer as ox
from cli_test import call

DATA = ""


class Stories(cli_test.Folder):
    """Tests on a small trained model: a Hugging Face folder, and the same as GGUF."""

    def setUp(self):
        super().setUp()
        self.stories = os.path.join(DATA, "stories260k")
        if not os.path.isdir(self.stories):
            self.skipTest(f"{self.stories} is absent")
        self.gguf = os.path.join(self.stories, "stories260k-f32.gguf")
        with open(os.path.join(self.stories, "expected.json"), encoding="utf-8") as file:
            self.expected = json.load(file)

    def logits(self, model):
        ids = ",".join(map(str, self.expected["ids"]))
        out = self.path("logits.npy")
        result = call("logits", model, "--ids", ids, "-o", out, "--activations", "f32")
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(out, "rb") as file:
            _, _, raw = ox.read_npy(file.read())
        return memoryview(raw).cast("f")


class Generate(Stories):
    def test_continues_as_known(self):
        for model in (self.stories, self.gguf):
            for case in self.expected["greedy"]:
                answer = self.json_of("generate", model, "--prompt", case["prompt"], "--max-tokens",
                                      len(case["greedy_ids"]))
                self.assertEqual(answer["token_ids"], case["greedy_ids"])
                self.assertEqual(answer["text"], case["text"])
                self.assertEqual(answer["finish_reason"], "length")
                self.assertEqual(answer["prompt_tokens"], len(case["prompt_ids"]))
            case = self.expected["greedy"][0]
            streamed = call("generate", model, "--prompt", case["prompt"], "--max-tokens", len(case["greedy_ids"]))
            self.assertEqual(streamed.stdout, case["text"] + "\n")

    def test_stops(self):
        answer = self.json_of("generate", self.gguf, "--prompt", "Once upon a time", "--stop", "Lily")
        self.assertEqual(answer["text"], ", there was a little girl named ")
        self.assertEqual(answer["finish_reason"], "stop")


class Quantize(Stories):
    def quantized(self, kind):
        path = self.path(kind + ".gguf")
        report = self.json_of("quantize", self.gguf, "-o", path, "--type", kind)
        self.assertLess(report["bytes_after"], report["bytes_before"])
        return path, {k["type"]: k for k in report["types"]}

    def difference(self, model):
        """Relative L2 error of the logits."""
        wanted, got = self.logits(self.gguf), self.logits(model)
        self.assertEqual(len(got), len(wanted))
        return (sum((a - b) ** 2 for a, b in zip(wanted, got)) / sum(a * a for a in wanted)) ** 0.5

    def test_types(self):
        for kind, limit in (("q8_0", 0.02), ("f16", 0.001), ("BF16", 0.01), ("q4_k", 0.2), ("Q4_K_M", 0.2)):
            path, kinds = self.quantized(kind)
            self.assertLess(self.difference(path), limit, kind)
            self.assertLess(max(k["relative_error"] for k in kinds.values()), 0.1)
            answer = self.json_of("generate", path, "--prompt", "Once upon a time", "--max-tokens", "8")
            self.assertEqual(answer["text"], ", there was a little girl", kind)
        self.assertIn("Q8_0", self.quantized("q8_0")[1])

    def test_wrong(self):
        out = self.path("out.gguf")
        self.fails(2, "E0801", "quantize", self.gguf, "-o", out, "--type", "q9_z", says=["Q4_K_M"])
        self.fails(3, "E0101", "quantize", self.path("missing.gguf"), "-o", out)
        self.fails(3, "E0104", "quantize", self.model, "-o", out)
        self.assertFalse(os.path.exists(out))


class Perplexity(Stories):
    def test_of_its_own_text(self):
        text = "Once upon a time" + self.expected["greedy"][0]["text"]
        path = self.write("own.txt", text.encode())
        for model in (self.stories, self.gguf):
            answer = self.json_of("perplexity", model, path)
            self.assertLess(answer["perplexity"], 4)
            windows = self.json_of("perplexity", model, path, "--ctx", 32, "--stride", 8)
            self.assertEqual(windows["tokens"], answer["tokens"])
            self.assertLess(windows["perplexity"], 1.5 * answer["perplexity"])
        noise = self.write("noise.txt", b"Zq xv jkw! 8d% pfq mmr zzt")
        self.assertGreater(self.json_of("perplexity", self.gguf, noise)["perplexity"], 50)
        self.fails(3, "E0505", "perplexity", self.gguf, self.write("empty.txt", b""))


if __name__ == "__main__":
    cli_test.TESSERA = os.path.abspath(sys.argv.pop(1))
    DATA = os.path.abspath(sys.argv.pop(1))
    unittest.main()
