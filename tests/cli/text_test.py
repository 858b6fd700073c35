#!/usr/bin/env python3
"""The commands on texts: tokenize, generate, perplexity, embed and quantize.

usage: text_test.py TESSERA SHARED_DATA [unittest arguments]; tests of a trained model skip where SHARED_DATA lacks it.
"""
import json
import os
import shutil
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

    def test_weights_cache_and_deterministic(self):
        def run(*more):
            return self.json_of("generate", self.gguf, "--prompt", "Once upon a time", "--max-tokens", 8, *more)

        plain = run()
        self.assertEqual(plain["weights"], "f32")
        small = run("--weights", "q8_0", "--kv", "int8")
        self.assertEqual(small["weights"], "q8_0")
        self.assertLess(small["weight_bytes"], plain["weight_bytes"] / 2)
        heads = plain["kv_bytes"] / 4 / 8  # of 8 elements in f32; in int8 each has a scale
        self.assertEqual(small["kv_bytes"], heads * (8 + 4))
        self.assertEqual(small["token_ids"], plain["token_ids"])
        alone = run("--deterministic", "--logprobs", 3, "--weights", "q8_0")
        others = [text for i in range(7) for text in ("--prompt", f"The {i}th of them")]
        among = run("--deterministic", "--logprobs", 3, "--weights", "q8_0", "--threads", 2, "--chunk", 3, *others)
        self.assertEqual(among["sequences"][0]["logprobs"], alone["logprobs"])
        self.fails(2, "E0801", "generate", self.gguf, "--prompt", "x", "--weights", "q9", says=["Q4_K_M"])


CHATML = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
          "{% if add_generation_prompt %}<|assistant|>{% endif %}")


class Chat(Stories):
    def chat(self, lines, *arguments):
        result = call("generate", self.gguf, "--chat", "--chat-template", self.template, "--max-tokens", "8", "--json",
                      *arguments, input="".join(line + "\n" for line in lines))
        self.assertEqual(result.returncode, 0, result.stderr)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def setUp(self):
        super().setUp()
        self.template = self.write("chat.jinja", CHATML.encode())

    def count(self, text):
        return len(self.json_of("tokenize", self.gguf, text, "--no-special")["ids"])

    def test_history(self):
        first, second = self.chat(["Once upon a time", "", "The end"])
        self.assertEqual(first["prompt_tokens"], self.count("<|user|>Once upon a time\n<|assistant|>"))
        history = f"<|user|>Once upon a time\n<|assistant|>{first['text']}\n<|user|>The end\n<|assistant|>"
        self.assertEqual(second["prompt_tokens"], self.count(history))
        told = self.chat(["Once upon a time"], "--system", "Be kind")[0]
        self.assertEqual(told["prompt_tokens"],
                         self.count("<|system|>Be kind\n<|user|>Once upon a time\n<|assistant|>"))
        self.assertEqual(self.chat([], "--prompt", "Once upon a time")[0]["text"], first["text"])
        self.assertEqual(self.chat([]), [])

    def test_forgets_what_does_not_fit(self):
        answers = self.chat(["The little dog was happy and ran in the park"] * 6, "--ctx", "96")
        self.assertEqual(len(answers), 6)
        self.assertTrue(all(a["prompt_tokens"] <= 96 for a in answers))

    def test_wrong(self):
        self.fails(4, "E0402", "generate", self.gguf, "--chat", says=["chat template", "--chat-template"])
        self.fails(2, "E0801", "generate", self.gguf, "--prompt", "x", "--system", "y")
        self.fails(2, "E0801", "generate", self.gguf, "--chat", "--ids", "1,2", "--chat-template", self.template)
        bad = self.write("bad.jinja", b"{{ bos_token }}\n{% fly %}")
        self.fails(3, "E0208", "generate", self.gguf, "--chat", "--chat-template", bad, says=["line 2", "{% fly %}"])
        refuses = self.write("refuses.jinja", b"\n{{ raise_exception('no roles here') }}")
        self.fails(3, "E0507", "generate", self.gguf, "--chat", "--prompt", "x", "--chat-template", refuses,
                   says=["line 2", "no roles here"])


class Tokenize(Stories):
    def test_both_forms(self):
        for model in (self.stories, self.gguf, os.path.join(self.stories, "tokenizer.model")):
            answer = self.json_of("tokenize", model, "Once upon a time", "--offsets")
            self.assertEqual(answer["ids"], [1, 403, 407, 261, 378])
            self.assertEqual(answer["pieces"][1:3], ["\u2581Once", "\u2581upon"])
            self.assertEqual(answer["offsets"], [[0, 0], [0, 4], [4, 9], [9, 11], [11, 16]])
            self.assertEqual(call("tokenize", model, "Once upon a time", "--no-special").stdout, "403,407,261,378\n")
            self.assertEqual(call("tokenize", model, "1,403 407\n261,378", "--decode").stdout, "<s>Once upon a time\n")
            self.assertEqual(call("tokenize", model, "1,403,407,261,378", "--decode", "--no-special").stdout,
                             "Once upon a time\n")

    def test_sources(self):
        lines = call("tokenize", self.gguf, "--no-special", input="Once\n\nupon\n").stdout
        self.assertEqual(lines, "403\n\n407\n")
        path = self.write("text.txt", "Once upon\na time é".encode())
        ids = call("tokenize", self.gguf, "--file", path).stdout.strip()
        self.assertEqual(self.json_of("tokenize", self.gguf, ids, "--decode", "--no-special")["text"],
                         "Once upon\na time é")
        table = call("tokenize", self.gguf, "Once upon", "--offsets").stdout
        self.assertEqual(table, "1\t0..0\t<s>\n403\t0..4\t\u2581Once\n407\t4..9\t\u2581upon\n")

    def test_wrong(self):
        self.fails(3, "E0101", "tokenize", self.folder, "x", says=["tokenizer.json", "vocab.txt"])
        self.fails(3, "E0101", "tokenize", self.path("missing"), "x")
        self.fails(3, "E0104", "tokenize", self.model, "x")
        self.fails(2, "E0801", "tokenize", self.gguf, "1,x", "--decode")
        self.fails(3, "E0505", "tokenize", self.gguf, "512", "--decode")
        self.fails(2, "E0801", "tokenize", self.gguf, "x", "--file", self.model)


class Vocabularies(cli_test.Folder):
    """Folders that hold a vocabulary alone."""

    def ids(self, text, *arguments):
        return self.json_of("tokenize", self.folder, text, *arguments)["ids"]

    def test_word_piece(self):
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "##s", "ran", "!", "e"]
        self.write("vocab.txt", "".join(w + "\n" for w in words).encode())
        self.assertEqual(self.ids("The dogs RAN! \u00e9 xyz"), [2, 5, 6, 7, 8, 9, 10, 1, 3])
        self.assertEqual(self.ids("the [MASK]", "--no-special"), [5, 4])
        self.assertEqual(call("tokenize", self.folder, "2,5,6,7,9,3", "--decode", "--no-special").stdout, "the dogs!\n")
        self.write("tokenizer_config.json", b'{"do_lower_case": false, "tokenizer_class": "BertTokenizer"}')
        self.assertEqual(self.ids("The dog"), [2, 1, 6, 3])
        self.write("tokenizer_config.json", b'{"tokenizer_class": "BertJapaneseTokenizer"}')
        self.fails(4, "E0402", "tokenize", self.folder, "x", says=["BertJapaneseTokenizer", "tokenizer.json"])

    def test_embedding_ignores_fillers(self):
        bert = os.path.join(DATA, "architectures", "st_bert")
        if not os.path.isdir(bert):
            self.skipTest(f"{bert} is absent")
        for name in ("config.json", "model.safetensors"):
            shutil.copy(os.path.join(bert, name), self.path(name))
        with open(os.path.join(bert, "tokenizer.json"), encoding="utf-8") as file:
            tokenizer = json.load(file)
        wanted = self.json_of("embed", bert, "--text", "hello world", "--pooling", "mean")
        tokenizer["padding"] = {"strategy": {"Fixed": 32}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                                "pad_type_id": 0, "pad_token": "[PAD]"}
        self.write("tokenizer.json", json.dumps(tokenizer).encode())
        got = self.json_of("embed", self.folder, "--text", "hello world", "--pooling", "mean")
        self.assertEqual(got["embeddings"], wanted["embeddings"])

    def test_byte_level(self):
        tokens = ["a", "b", "c", "\u0120", "ab", "\u0120c", "abab", "<|endoftext|>", "<s>", "</s>"]
        self.write("vocab.json", json.dumps({t: i for i, t in enumerate(tokens)}).encode())
        self.write("merges.txt", "#version: 0.2\na b\n\u0120 c\nab ab\n".encode())
        self.assertEqual(self.ids("ababa c<|endoftext|>b"), [6, 0, 5, 7, 1])
        self.assertEqual(call("tokenize", self.folder, "6,0,5,7", "--decode", "--no-special").stdout, "ababa c\n")
        self.write("tokenizer_config.json", b'{"tokenizer_class": "RobertaTokenizer"}')
        self.assertEqual(self.ids("ab c"), [8, 4, 5, 9])
        self.write("merges.txt", b"a b\na x\n")
        self.fails(3, "E0209", "tokenize", self.folder, "x", says=["merge 1", "'x'"])
        self.write("merges.txt", b"a b c\n")
        self.fails(3, "E0104", "tokenize", self.folder, "x", says=["merge 0"])

    def test_equals_tokenizer_json(self):
        bert = os.path.join(DATA, "architectures", "bert")
        if not os.path.isdir(bert):
            self.skipTest(f"{bert} is absent")
        for name in ("vocab.txt", "tokenizer_config.json"):
            with open(os.path.join(bert, name), "rb") as file:
                self.write(name, file.read())
        for text in ("Hello, World!", "na\u00efve caf\u00e9 [MASK] \u6771\u4eac", "", "un\u200bhappy \U0001f600"):
            self.assertEqual(self.ids(text), self.json_of("tokenize", bert, text)["ids"], text)


class Embed(Stories):
    def test_texts(self):
        for form in ("st_bert", "bert", os.path.join("bert", "bert-f32.gguf")):
            model = os.path.join(DATA, "architectures", form)
            if not os.path.exists(model):
                self.skipTest(f"{model} is absent")
            ids = self.json_of("tokenize", model, "hello world")["ids"]
            by_text = self.json_of("embed", model, "--text", "hello world", "--pooling", "mean")
            by_ids = self.json_of("embed", model, "--ids", ",".join(map(str, ids)), "--pooling", "mean")
            self.assertEqual(by_text["embeddings"], by_ids["embeddings"])

    def test_long_texts_lose_their_ends(self):
        model = os.path.join(DATA, "architectures", "st_bert")  # its files ask for 48 tokens
        if not os.path.isdir(model):
            self.skipTest(f"{model} is absent")
        text = "hello world " * 100
        ids = self.json_of("tokenize", model, text)["ids"]
        ids = ids[:47] + ids[-1:]
        result = call("embed", model, "--text", text, "--json")
        self.assertIn("1 of 1 texts are longer than 48 tokens", result.stderr)
        by_ids = self.json_of("embed", model, "--ids", ",".join(map(str, ids)))
        self.assertEqual(json.loads(result.stdout)["embeddings"], by_ids["embeddings"])


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
