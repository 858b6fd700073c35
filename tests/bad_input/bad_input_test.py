#!/usr/bin/env python3
"""Bad input of every kind, as a user meets it: the exit code, the error's code, a message that names the thing and both
facts, a hint; and never a crash, a hang, or memory that a small file has no business with.

usage: bad_input_test.py TESSERA [--sanitized] [unittest arguments]
"""
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import bad_models
from bad_models import ox

TESSERA = ""
SANITIZED = False  # shadow memory takes terabytes of addresses: no limit can be set
SECONDS = 60  # ten times that when sanitized
ADDRESSES = 2 << 30  # bytes; a run of these models takes a few dozen MiB


def limit_memory():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))


def call(*arguments):
    return subprocess.run([TESSERA, *map(str, arguments)], capture_output=True, timeout=SECONDS, preexec_fn=limit_memory)


class BadInput(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = self.temporary.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def refused(self, exit_code, code, says, *arguments):
        result = call(*arguments)
        errors = result.stderr.decode(errors="replace")
        shown = f"tessera {' '.join(map(str, arguments))}: exit {result.returncode}\n{errors[-2000:]}"
        exit_codes = exit_code if isinstance(exit_code, tuple) else (exit_code,)
        self.assertIn(result.returncode, exit_codes, shown)
        self.assertRegex(errors, rf"\A({code})", shown)
        self.assertRegex(errors, r"\n  hint: \S", shown)
        for word in says:
            self.assertIn(word, errors, shown)
        return result

    def check_models(self, group):
        for bad in group():
            with self.subTest(bad.name):
                model = self.write(f"{bad.name}.onnx", bad.data)
                self.refused(bad.exit_code, bad.code, bad.says, "run", model, "--input", "x=random")


class Models(BadInput):
    def test_protobuf(self):
        self.check_models(bad_models.bad_protobuf)

    def test_names(self):
        self.check_models(bad_models.bad_names)

    def test_operands(self):
        self.check_models(bad_models.bad_operands)

    def test_shapes(self):
        self.check_models(bad_models.bad_shapes)

    def test_control_flow(self):
        self.check_models(bad_models.bad_control)

    def test_growth(self):
        self.check_models(bad_models.bad_growth)

    def test_folding_does_not_fill_memory(self):
        result = call("run", self.write("chain.onnx", bad_models.long_chain()), "--input", "x=random")
        self.assertEqual(result.returncode, 0, result.stderr.decode())

    def test_runs(self):
        self.check_models(bad_models.late)

    def test_sound_ones_run(self):
        for name, data in bad_models.sound():
            with self.subTest(name):
                model = self.write(f"{name}.onnx", data)
                result = call("run", model, "--input", "x=random")
                self.assertEqual(result.returncode, 0, result.stderr.decode())

    def test_every_cut(self):
        """No prefix of a model may crash; hardly any is a model."""
        whole = dict(bad_models.sound())["scan"]
        for length in range(0, len(whole), 3):
            result = call("run", self.write("cut.onnx", whole[:length]), "--input", "x=random")
            self.assertIn(result.returncode, (3, 4), result.stderr.decode())


class ExternalData(BadInput):
    def model(self, name, **location):
        weights = ox.tensor("w", ox.FLOAT, [2], b"", location)
        return self.write(name, bad_models.model([ox.node("Add", ["x", "w"], ["y"], "n")], [bad_models.vi("x", [2])],
                                                 None, [weights]))

    def test_every_way_out(self):
        self.write("secret.bin", ox.floats([1, 2]))
        self.write("m/w.bin", ox.floats([1, 2]))
        os.makedirs(self.path("m/sub"))
        os.symlink(self.path("secret.bin"), self.path("m/link"))
        os.symlink(self.folder, self.path("m/up"))
        os.symlink(self.path("m/w.bin"), self.path("m/near"))
        os.mkfifo(self.path("m/pipe"))
        for code, says, location in (
                ("E0105", ["'../secret.bin'"], dict(location="../secret.bin")),
                ("E0105", [], dict(location="sub/../../secret.bin")),
                ("E0105", [], dict(location=self.path("secret.bin"))),
                ("E0105", ["link"], dict(location="link")),
                ("E0105", ["link"], dict(location="near")),
                ("E0105", ["link"], dict(location="up/secret.bin")),
                ("E0201", ["'w'"], dict(location="")),
                ("E0105", [], dict(location="w.bin\0/../../secret.bin")),
                ("E0101", ["missing"], dict(location="missing")),
                ("E0101", [], dict(location="sub")),
                ("E0101", [], dict(location="pipe")),
                ("E0103", ["'w'", "8"], dict(location="w.bin", offset=8)),
                ("E0103", ["'w'"], dict(location="w.bin", offset=1)),
                ("E0103|E0201", ["'w'"], dict(location="w.bin", offset=1 << 63)),
                ("E0103|E0201", ["'w'"], dict(location="w.bin", offset=(1 << 64) - 4)),
                ("E0201", ["'w'", "8"], dict(location="w.bin", length=4)),
                ("E0201", ["'w'"], dict(location="w.bin", length=1 << 62)),
                ("E0201", ["'w'"], dict(location="w.bin", length=(1 << 64) - 1)),
                ("E0201", ["'w'"], dict(location="w.bin", offset=-4)),
                ("E0201", ["'w'"], dict(location="w.bin", offset="1e3")),
                ("E0201", ["'w'"], dict(location="w.bin", offset="")),
                ("E0201", ["'w'"], dict(offset=0))):
            with self.subTest(str(location)):
                self.refused(3, code, says, "run", self.model("m/model.onnx", **location), "--input", "x=random")


class Inputs(BadInput):
    """Inputs of a model, and the files that they are read from."""

    def setUp(self):
        super().setUp()
        self.model = self.write("m.onnx", bad_models.model(
            [ox.node("Add", ["x", "w"], ["y"], "n")], [bad_models.vi("x", ["batch", 3])], None,
            [bad_models.weights("w", [3])]))

    def test_names_types_and_shapes(self):
        doubles = self.write("d.npy", ox.npy("<f8", (1, 3), b"\0" * 24))
        for exit_code, code, says, arguments in (
                (3, "E0501", ["'x' (f32[batch, 3])"], []),
                (3, "E0502", ["'z'", "'x'"], ["--input", "z=random:1,3"]),
                (3, "E0502", ["did you mean 'x'"], ["--input", "X=random:1,3"]),
                (3, "E0203", ["'x'"], ["--input", "x=random:1,3", "--input", "x=random:1,3"]),
                (3, "E0302", ["f32[batch, 3]", "f64[1, 3]"], ["--input", f"x={doubles}"]),
                (3, "E0303", ["f32[batch, 3]", "f32[3]"], ["--input", "x=random:3"]),
                (3, "E0312", ["f32[batch, 3]", "f32[1, 4]"], ["--input", "x=random:1,4"]),
                (3, "E0313", ["batch", "--dim"], ["--input", "x=random"]),
                (3, "E0316", ["batch", "9"], ["--dim", "batch=1..4", "--input", "x=random:9,3"]),
                (3, "E0312", ["[2, 3]", "[4, 3]"], ["--dim", "batch=2", "--input", "x=random:4,3"]),
                (3, "E0202", ["'bach'", "did you mean 'batch'"], ["--dim", "bach=2", "--input", "x=random:2,3"]),
                ((3, 5), "E0313|E0503", [], ["--input", f"x=random:{1 << 62},3"]),
                (5, "E0503", ["bytes"], ["--input", f"x=random:{1 << 40},3"]),
                (5, "E0503", ["bytes"], ["--dim", f"batch={1 << 40}", "--input", "x=random"])):
            for command in ("run", "bench", "verify"):
                if command != "run" and code == "E0501":
                    continue  # these make what is missing
                with self.subTest(command=command, arguments=arguments):
                    self.refused(exit_code, code, says, command, self.model, *arguments)

    def test_dims_of_every_format(self):
        tess = self.path("m.tess")
        self.assertEqual(call("compile", self.model, "-o", tess).returncode, 0)
        text = self.write("m.tg", b'graph "t" {\n  dim batch\n  in %0 "x": f32[batch, 3]\n  out %0 "y"\n}\n')
        for model in (self.model, tess, text):
            with self.subTest(model):
                self.refused(3, "E0202", ["'bacth'", "'batch'"], "run", model, "--dim", "bacth=2", "--input", "x=random")
                result = call("run", model, "--dim", "batch=2", "--input", "x=random")
                self.assertEqual(result.returncode, 0, result.stderr.decode())

    def test_npy(self):
        good = ox.npy("<f4", (1, 3), ox.floats([1, 2, 3]))
        huge = ox.npy("<f4", (1 << 40, 1 << 40), b"")
        for name, data in (("empty", b""), ("magic_only", good[:6]), ("cut_header", good[:40]), ("cut_data", good[:-1]),
                           ("too_long", good + b"\0"), ("huge_shape", huge),
                           ("huge_header", b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + good[10:]),
                           ("version", b"\x93NUMPY\x09" + good[7:]),
                           ("negative", good.replace(b"(1, 3)", b"(-1,3)")),
                           ("object", good.replace(b"'<f4'", b"'|O' ")),
                           ("no_shape", good.replace(b"'shape'", b"'shade'")),
                           ("code", good.replace(b"(1, 3)", b"exit()"))):
            with self.subTest(name):
                self.refused((3, 4), "E01|E03|E0402", [name], "run", self.model, "--input",
                             f"x={self.write(name + '.npy', data)}")
        self.refused(3, "E0101", ["nowhere"], "run", self.model, "--input", f"x={self.path('nowhere.npy')}")
        self.refused(3, "E0101", [], "run", self.model, "--input", f"x={self.folder}")

    def test_pb(self):
        good = ox.tensor("x", ox.FLOAT, [1, 3], ox.floats([1, 2, 3]))
        for name, data in (("cut", good[:-1]), ("noise", b"\xff" * 50), ("short_data", good.replace(b"\x0c", b"\x08", 1)),
                           ("type", ox.tensor("x", 77, [1, 3], b"")),
                           ("negative", ox.tensor("x", ox.FLOAT, [-1, 3], b"")),
                           ("overflow", ox.tensor("x", ox.FLOAT, [1 << 40, 1 << 40], b"")),
                           ("strings", ox.tensor("x", ox.STRING, [1], b"")),
                           ("external", ox.tensor("x", ox.FLOAT, [1, 3], b"", {"location": "/etc/passwd"}))):
            with self.subTest(name):
                self.refused((3, 4), "E0", [], "run", self.model, "--input", f"x={self.write(name + '.pb', data)}")


class Outputs(BadInput):
    def setUp(self):
        super().setUp()
        self.model = self.write("m.onnx", dict(bad_models.sound())["linear"])

    def test_nothing_half_written(self):
        taken = self.write("taken", b"a file")
        self.write("kept/y.npy", b"old")
        before = sorted(os.listdir(self.folder))
        places = [self.path("missing"), self.path("missing/deeper"), taken, "/proc/none", "/dev/null"]
        for place in places:
            with self.subTest(place):
                self.refused(5, "E0102", [place], "run", self.model, "--input", "x=random", "--output-dir", place)
        for place in (self.path("missing/m.tess"), self.folder, taken + "/m.tess", "/proc/m.tess", "/dev/full"):
            with self.subTest(place):
                self.refused(5, "E0102", [], "compile", self.model, "-o", place)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_a_run_that_fails_leaves_the_old_outputs(self):
        model = self.write("late.onnx", next(b.data for b in bad_models.late() if b.name == "gather_out_of_range"))
        old = self.write("kept/y.npy", b"old")
        self.refused(3, "E0315", [], "run", model, "--input", "x=random", "--output-dir", os.path.dirname(old))
        with open(old, "rb") as file:
            self.assertEqual(file.read(), b"old")
        self.assertEqual(os.listdir(os.path.dirname(old)), ["y.npy"])


class Artifacts(BadInput):
    def setUp(self):
        super().setUp()
        model = self.write("m.onnx", dict(bad_models.sound())["linear"])
        self.assertEqual(call("compile", model, "-o", self.path("m.tess")).returncode, 0)
        with open(self.path("m.tess"), "rb") as file:
            self.whole = file.read()

    def run_changed(self, exit_code, code, data):
        self.refused(exit_code, code, [], "run", self.write("bad.tess", bytes(data)), "--input", "x=random")

    def test_cut(self):
        for length in (9, 16, 40, 64, 100, len(self.whole) // 2, len(self.whole) - 1):
            with self.subTest(length):
                self.run_changed(3, "E060[12]", self.whole[:length])

    def test_grown(self):
        self.run_changed(3, "E0602", self.whole + b"\0")

    def test_another_version(self):
        data = bytearray(self.whole)
        data[8] += 1
        self.run_changed(3, "E060[12]", data)

    def test_flipped(self):
        """Structure is checked before use: a flipped bit there is found, wherever it is. Weights are checked on demand."""
        structure = len(self.whole) // 2
        for at in range(0, structure, max(1, structure // 60)):
            data = bytearray(self.whole)
            data[at] ^= 0x41
            result = call("run", self.write("bad.tess", bytes(data)), "--input", "x=random")
            self.assertIn(result.returncode, (0, 3), f"byte {at}: {result.stderr.decode()}")


class Arguments(BadInput):
    def test_every_command(self):
        model = self.write("m.onnx", dict(bad_models.sound())["linear"])
        text = self.write("m.tg", b'graph "t" {\n  nonsense\n}\n')
        for exit_code, code, says, arguments in (
                (2, "E0801", [], []),
                (2, "E0801", [], ["fly"]),
                (2, "E0801", [], ["run"]),
                (2, "E0801", ["--nonsense"], ["run", model, "--nonsense"]),
                (2, "E0801", ["x"], ["run", model, "--input", "x"]),
                (2, "E0801", [], ["run", model, "--input", "x="]),
                (2, "E0801", [], ["run", model, "--input"]),
                (2, "E0801", ["1,,3"], ["run", model, "--input", "x=random:1,,3"]),
                (2, "E0801", ["-1"], ["run", model, "--input", "x=random:-1,3"]),
                (2, "E0801", [], ["run", model, "--input", "x=random:99999999999999999999"]),
                (2, "E0801", ["7"], ["run", model, "-O7"]),
                (2, "E0801", [], ["run", model, "--threads", "-1"]),
                (2, "E0801", [], ["run", model, "--threads", "many"]),
                (2, "E0801", [], ["run", model, "--seed", "many"]),
                (2, "E0801", ["batch"], ["run", model, "--dim", "batch"]),
                (2, "E0801", ["=2"], ["run", model, "--dim", "=2"]),
                (2, "E0801", ["lots"], ["run", model, "--dim", "batch=lots"]),
                (2, "E0801", ["5", "2"], ["run", model, "--dim", "batch=5..2"]),
                (2, "E0801", ["-3"], ["run", model, "--dim", "batch=-3"]),
                (2, "E0801", [], ["bench", model, "--runs", "0"]),
                (2, "E0801", [], ["verify", model, "--tolerance", "-1"]),
                (2, "E0801", [], ["compile", model]),
                (2, "E0801", ["E9999"], ["explain", "E9999"]),
                (3, "E0101", ["nowhere"], ["run", self.path("nowhere.onnx")]),
                (3, "E0101", [], ["run", self.folder]),
                (3, "E0101", ["/dev/null"], ["run", "/dev/null"]),
                (3, "E0205", ["line 2"], ["run", text]),
                (3, "E0101", ["nowhere"], ["conformance", self.path("nowhere")])):
            with self.subTest(str(arguments)):
                self.refused(exit_code, code, says, *arguments)


class Streams(BadInput):
    """What commands read from and write to, when that is full, closed or endless; and a user who has waited enough."""

    def setUp(self):
        super().setUp()
        self.model = self.write("m.onnx", dict(bad_models.sound())["linear"])

    def test_full_outputs(self):
        for arguments in (["ops"], ["ops", "--json"], ["--help"], ["--version"], ["explain", "E0312"],
                          ["inspect", self.model, "--text"], ["run", self.model, "--input", "x=random", "--json"],
                          ["compile", self.model, "-o", self.path("m.tess"), "--dump-after", "all"]):
            with self.subTest(str(arguments)), open("/dev/full", "w") as full:
                result = subprocess.run([TESSERA, *arguments], stdout=full, stderr=subprocess.PIPE, timeout=SECONDS)
                self.assertEqual(result.returncode, 5, result.stderr)
                self.assertTrue(result.stderr.startswith(b"E0102"), result.stderr)
                result = subprocess.run([TESSERA, "fly"], stdout=full, stderr=full, timeout=SECONDS)
                self.assertEqual(result.returncode, 2)

    def test_files_without_end_or_kind(self):
        os.mkfifo(self.path("pipe"))
        for place in (self.path("pipe"), "/dev/zero", "/dev/null", self.folder, "/proc/self/mem", "", "\udcff"):
            for arguments in (["run", place], ["inspect", place, "--json"], ["compile", place, "-o", self.path("o.tess")],
                              ["bench", place], ["verify", place], ["generate", place, "--prompt", "x"],
                              ["tokenize", place, "x"], ["embed", place, "--text", "x"],
                              ["quantize", place, "-o", self.path("o.gguf")], ["perplexity", place, self.model],
                              ["run", self.model, "--input", f"x={place}"], ["run", self.model, "--rules", place],
                              ["run", self.model, "--options", place], ["conformance", self.folder, "--skips", place]):
                if not place and arguments[-1] == "" and arguments[-2] in ("--rules", "--options", "--skips"):
                    continue  # the same as no file
                with self.subTest(str(arguments)):
                    self.refused((2, 3, 5), "E0", [], *arguments)

    def test_errors_are_json_too(self):
        for exit_code, code, arguments in ((2, "E0801", ["run", "--json"]), (2, "E0801", ["fly", "--json"]),
                                           (3, "E0101", ["inspect", self.path("nowhere"), "--json"]),
                                           (3, "E0501", ["run", self.model, "--json"]),
                                           (3, "E0101", ["tokenize", self.path("\udcff"), "x", "--json"])):
            with self.subTest(str(arguments)):
                result = self.refused(exit_code, code, [], *arguments)
                error = json.loads(result.stdout.decode().splitlines()[-1])["error"]
                self.assertEqual((error["code"], error["exit_code"]), (code, exit_code))
                self.assertTrue(error["message"] and error["hint"])

    def test_interrupts(self):
        endless = next(b.data for b in bad_models.bad_control() if b.name == "loop_without_end")
        loop = self.write("loop.onnx", endless)
        for arguments in (["run", loop, "--input", "x=random"], ["run", loop, "--input", "x=random", "--reference"],
                          ["bench", loop], ["verify", loop], ["bench", self.model, "--runs", "1000000"]):
            with self.subTest(str(arguments)):
                process = subprocess.Popen([TESSERA, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                time.sleep(0.5)
                process.send_signal(signal.SIGINT)
                errors = process.communicate(timeout=SECONDS)[1]
                # Before the handler stands, the signal's own way is right too.
                self.assertIn(process.returncode, (6, -signal.SIGINT), errors)


if __name__ == "__main__":
    TESSERA = os.path.abspath(sys.argv.pop(1))
    if "--sanitized" in sys.argv:
        sys.argv.remove("--sanitized")
        SANITIZED = True
        SECONDS *= 10
    unittest.main()
