#!/usr/bin/env python3
"""The compile cache as a user meets it: where it lies, when it is used, two processes at once, damage, its bound.

usage: cache_test.py TESSERA [unittest arguments]
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import models
from models import ox

TESSERA = ""
WIDTH = 640  # 640 x 640 floats are 1.6 MB: worth keeping


def wide_model(seed=1):
    w = models.Writer(seed)
    y = w.node("MatMul", ["x", w.weight("w", [WIDTH, WIDTH])], "layer")
    return w.model([ox.value_info("x", ox.FLOAT, ["batch", WIDTH])], [ox.value_info(y, ox.FLOAT, ["batch", WIDTH])])


class Cache(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = self.temporary.name
        self.model = self.path("wide.onnx")
        with open(self.model, "wb") as file:
            file.write(wide_model())
        self.environment = {k: v for k, v in os.environ.items() if k not in ("TESSERA_CACHE_DIR", "XDG_CACHE_HOME")}
        self.environment["HOME"] = self.folder

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def start(self, *arguments, model=None, **environment):
        return subprocess.Popen([TESSERA, "bench", model or self.model, "--dim", "batch=1", "--runs", "1", "--json",
                                 *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**self.environment, **environment})

    def bench(self, *arguments, **options):
        out, err = self.start(*arguments, **options).communicate(timeout=120)
        return json.loads(out.splitlines()[-1]) if out else self.fail(err)

    def entries(self, folder=None):
        folder = folder or self.path(".cache", "tessera")
        if not os.path.isdir(folder):
            return []
        return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".tess")]

    def test_lies_in_the_home_folder_and_is_found_again(self):
        first, second = self.bench(), self.bench()
        self.assertEqual((first["from_cache"], second["from_cache"]), (False, True))
        self.assertEqual((first["nodes"], first["kernels"]), (second["nodes"], second["kernels"]))
        self.assertEqual(len(self.entries()), 1)

    def test_can_be_put_elsewhere_or_left_out(self):
        self.assertFalse(self.bench("--no-cache")["from_cache"])
        self.assertEqual(self.entries(), [])
        self.bench("--cache-dir", self.path("a"))
        self.bench(TESSERA_CACHE_DIR=self.path("b"))
        self.bench(XDG_CACHE_HOME=self.path("c"))
        for folder in (("a",), ("b",), ("c", "tessera")):
            self.assertEqual(len(self.entries(self.path(*folder))), 1)
        self.assertEqual(self.entries(), [])

    def test_small_models_and_other_commands_leave_nothing(self):
        small = self.path("small.onnx")
        with open(small, "wb") as file:
            file.write(models.conv_net())
        for _ in range(2):
            result = subprocess.run([TESSERA, "bench", small, "--runs", "1", "--json"], env=self.environment,
                                    capture_output=True, text=True, timeout=120)
            self.assertFalse(json.loads(result.stdout.splitlines()[-1])["from_cache"])
        subprocess.run([TESSERA, "verify", self.model, "--dim", "batch=1"], env=self.environment, check=True,
                       capture_output=True, timeout=120)
        self.assertEqual(self.entries(), [])

    def test_a_changed_model_and_other_options_are_made_anew(self):
        self.bench()
        with open(self.model, "wb") as file:
            file.write(wide_model(2))
        self.assertFalse(self.bench()["from_cache"])
        self.assertFalse(self.bench("-O0")["from_cache"])
        self.assertEqual(len(self.entries()), 3)

    def test_damage_is_found_and_made_good(self):
        self.bench()
        entry = self.entries()[0]
        with open(entry, "rb") as file:
            whole = file.read()
        for position in (0, 100, len(whole) // 2, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[position] ^= 0x10
            with open(entry, "wb") as file:
                file.write(damaged)
            self.assertFalse(self.bench()["from_cache"], position)
            self.assertTrue(self.bench()["from_cache"], position)
            with open(entry, "rb") as file:
                self.assertEqual(file.read(), whole)

    def test_processes_at_once(self):
        for _ in range(2):
            processes = [self.start() for _ in range(3)]
            for process in processes:
                out, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 0, err)
        self.assertTrue(self.bench()["from_cache"])
        self.assertEqual(len(self.entries()), 1)
        self.assertFalse([name for name in os.listdir(self.path(".cache", "tessera")) if name.endswith(".tmp")])

    def test_its_size_is_bounded(self):
        for level in ("-O0", "-O1", "-O2"):
            self.bench(level, "--cache-bytes", "4000000")
        self.assertEqual(len(self.entries()), 2)
        self.bench("-O3", TESSERA_CACHE_BYTES="2000000")
        self.assertEqual(len(self.entries()), 1)
        self.assertLess(sum(os.path.getsize(entry) for entry in self.entries()), 2000000)


if __name__ == "__main__":
    TESSERA = os.path.abspath(sys.argv.pop(1))
    unittest.main(argv=sys.argv[:1] + sys.argv[1:])
