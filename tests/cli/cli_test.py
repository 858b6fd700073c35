#!/usr/bin/env python3
"""The command as a user has it: what it prints, the fields of its JSON, its exit codes, and bad input.

usage: cli_test.py TESSERA [unittest arguments]
"""
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import onnx_writer as ox

TESSERA = ""


def call(*arguments, **options):
    return subprocess.run([TESSERA, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


def linear_model():
    """y[batch, 2] = x[batch, 3] w + b"""
    weights = [ox.tensor("w", ox.FLOAT, [3, 2], ox.floats([1, 2, 3, 4, 5, 6])),
               ox.tensor("b", ox.FLOAT, [2], ox.floats([10, 20]))]
    nodes = [ox.node("MatMul", ["x", "w"], ["h"], "product"), ox.node("Add", ["h", "b"], ["y"], "sum")]
    return ox.model(ox.graph(nodes, [ox.value_info("x", ox.FLOAT, ["batch", 3])],
                             [ox.value_info("y", ox.FLOAT, ["batch", 2])], weights))


class Folder(unittest.TestCase):
    """Tests in a folder of their own, with a model in it."""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = self.temporary.name
        self.model = self.write("model.onnx", linear_model())
        self.x = self.write("x.npy", ox.npy("<f4", (1, 3), ox.floats([1, 1, 1])))

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def fails(self, exit_code, code, *arguments, says=()):
        result = call(*arguments)
        self.assertEqual(result.returncode, exit_code, result.stdout + result.stderr)
        self.assertTrue(result.stderr.startswith(code), result.stderr)
        for part in says:
            self.assertIn(part, result.stderr)
        return result

    def json_of(self, *arguments, exit_code=0):
        result = call(*arguments, "--json")
        self.assertEqual(result.returncode, exit_code, result.stdout + result.stderr)
        return json.loads(result.stdout.splitlines()[-1])


class Usage(Folder):
    def test_version(self):
        result = call("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^tessera \d+\.\d+\.\d+\n$")

    def test_every_command_has_an_example(self):
        listed = call("--help").stdout.split("Subcommands:")[1]
        commands = [line.split()[0] for line in listed.splitlines() if line.startswith("  ") and line[2] != " "]
        for wanted in ("run", "inspect", "compile", "bench", "verify", "ops", "info", "explain", "conformance"):
            self.assertIn(wanted, commands)
        for command in commands:
            result = call(command, "--help")
            self.assertEqual(result.returncode, 0, command)
            self.assertIn(f"Example: tessera {command}", result.stdout)

    def test_wrong_usage(self):
        self.fails(2, "E0801")
        self.fails(2, "E0801", "fly")
        self.fails(2, "E0801", "run")
        self.fails(2, "E0801", "run", self.model, "--nonsense")
        self.fails(2, "E0801", "run", self.model, "--input", "x")
        self.fails(2, "E0801", "run", self.model, "-O7", "--input", "x=random:1,3")
        self.fails(2, "E0801", "bench", self.model, "--dim", "batch=lots")
        self.fails(2, "E0801", "bench", self.model, "--dim", "batch=5..2")
        self.fails(2, "E0801", "run", self.model, "--input", "x=random:1,,3")

    def test_isa_that_is_not_there(self):
        result = call("run", self.model, "--input", f"x={self.x}", env={**os.environ, "TESSERA_ISA": "mmx"})
        self.assertEqual(result.returncode, 2)
        self.assertIn("E0802", result.stderr)

    def test_explain(self):
        self.assertIn("shapes do not agree", call("explain", "E0312").stdout)
        self.assertEqual(self.json_of("explain", "e0501")["exit_code"], 3)
        self.fails(2, "E0801", "explain", "E9999")

    def test_ops(self):
        names = [op["name"] for op in self.json_of("ops")["ops"]]
        self.assertIn("softmax", names)
        self.assertEqual(len(names), len(set(names)))

    def test_info(self):
        info = self.json_of("info")
        self.assertGreaterEqual(info["cores"], 1)
        self.assertIn(info["isa"], info["isas"])
        self.assertGreater(info["peak_gflops"], 0)
        self.assertGreater(info["read_bandwidth_gb_s"], 0)


class Run(Folder):
    def values(self, path, count):
        with open(path, "rb") as file:
            _, _, raw = ox.read_npy(file.read())
        return struct.unpack(f"<{count}f", raw)

    def test_from_npy_and_pb_in_both_modes(self):
        pb = self.write("x.pb", ox.tensor("x", ox.FLOAT, [1, 3], ox.floats([1, 1, 1])))
        for source in (self.x, pb):
            for mode in ((), ("--reference",), ("-O0",), ("--threads", "1")):
                answer = self.json_of("run", self.model, "--input", f"x={source}", "--output-dir", self.folder, *mode)
                output = answer["outputs"][0]
                self.assertEqual((output["name"], output["shape"], output["dtype"]), ("y", [1, 2], "f32"))
                self.assertEqual(self.values(output["file"], 2), (19, 32))

    def test_without_a_folder_nothing_is_written(self):
        before = sorted(os.listdir(self.folder))
        answer = self.json_of("run", self.model, "--input", f"x={self.x}")
        self.assertIsNone(answer["outputs"][0]["file"])
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_random_inputs_are_the_same_each_time(self):
        for shape in ("x=random:4,3", "x=random:4x3"):
            self.json_of("run", self.model, "--input", shape, "--output-dir", self.folder)
            first = self.values(self.path("y.npy"), 8)
            self.json_of("run", "--dim", "batch=4", self.model, "--input", "x=random", "--output-dir", self.folder)
            self.assertEqual(self.values(self.path("y.npy"), 8), first)

    def test_names(self):
        self.fails(3, "E0501", "run", self.model, says=["'x' (f32[batch, 3])"])
        self.fails(3, "E0502", "run", self.model, "--input", f"X={self.x}", says=["'X'", "did you mean 'x'?"])
        self.fails(3, "E0203", "run", self.model, "--input", f"x={self.x}", "--input", f"x={self.x}")

    def test_types_and_shapes(self):
        doubles = self.write("d.npy", ox.npy("<f8", (1, 3), struct.pack("<3d", 1, 1, 1)))
        self.fails(3, "E0302", "run", self.model, "--input", f"x={doubles}", says=["f32[batch, 3]", "f64[1, 3]"])
        self.fails(3, "E0303", "run", self.model, "--input", "x=random:3", says=["f32[batch, 3]", "f32[3]"])
        self.fails(3, "E0312", "run", self.model, "--input", "x=random:1,4", says=["f32[batch, 3]", "f32[1, 4]"])
        self.fails(3, "E0313", "run", self.model, "--input", "x=random", says=["batch"])
        self.fails(3, "E0316", "run", self.model, "--dim", "batch=1..2", "--input", "x=random:3,3", says=["batch"])

    def test_unwritable_folder(self):
        self.fails(5, "E0102", "run", self.model, "--input", f"x={self.x}", "--output-dir", self.path("missing"))
        self.fails(5, "E0102", "run", self.model, "--input", f"x={self.x}", "--output-dir", self.x)
        self.assertEqual(sorted(os.listdir(self.folder)), ["model.onnx", "x.npy"])

    def test_sizes_that_break_an_assumption_of_the_general_plan(self):
        model = self.write("sum.onnx", ox.model(ox.graph(
            [ox.node("Add", ["x", "y"], ["z"])],
            [ox.value_info("x", ox.FLOAT, ["n"]), ox.value_info("y", ox.FLOAT, ["m"])],
            [ox.value_info("z", ox.FLOAT, ["k"])])))
        for n, m in ((4, 4), (4, 1), (1, 5)):
            for mode in ((), ("--reference",)):
                answer = self.json_of("run", model, "--input", f"x=random:{n}", "--input", f"y=random:{m}", *mode)
                self.assertEqual(answer["outputs"][0]["shape"], [max(n, m)])
        self.fails(3, "E0312", "run", model, "--input", "x=random:3", "--input", "y=random:4")

    def test_empty_batch(self):
        answer = self.json_of("run", self.model, "--input", "x=random:0,3")
        self.assertEqual(answer["outputs"][0]["shape"], [0, 2])

    def test_names_that_no_file_can_have(self):
        nodes = [ox.node("Identity", ["x"], ["../a/b"])]
        model = self.write("names.onnx", ox.model(ox.graph(nodes, [ox.value_info("x", ox.FLOAT, [1])],
                                                           [ox.value_info("../a/b", ox.FLOAT, [1])])))
        answer = self.json_of("run", model, "--input", "x=random", "--output-dir", self.folder)
        self.assertEqual(os.path.dirname(answer["outputs"][0]["file"]), self.folder)

    def test_interrupt(self):
        body = ox.graph([ox.node("Identity", ["c"], ["c2"]), ox.node("Identity", ["v"], ["v2"])],
                        [ox.value_info("i", ox.INT64, []), ox.value_info("c", ox.BOOL, []),
                         ox.value_info("v", ox.FLOAT, [])],
                        [ox.value_info("c2", ox.BOOL, []), ox.value_info("v2", ox.FLOAT, [])], name="body")
        nodes = [ox.node("Loop", ["n", "", "x"], ["y"], body=body)]
        model = self.write("loop.onnx", ox.model(ox.graph(
            nodes, [ox.value_info("x", ox.FLOAT, [])], [ox.value_info("y", ox.FLOAT, [])],
            [ox.tensor("n", ox.INT64, [], ox.int64s([1 << 28]))])))
        process = subprocess.Popen([TESSERA, "run", model, "--input", "x=random"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(1)
        self.assertIsNone(process.poll(), "the loop was over before it could be interrupted")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 6, errors)
        self.assertIn("E0504", errors)


class BadModels(Folder):
    def run_model(self, exit_codes, data, *arguments):
        model = self.write("bad.onnx", data)
        for command in (("run", *arguments), ("inspect",), ("bench",)):
            result = call(command[0], model, *command[1:])
            self.assertIn(result.returncode, exit_codes, result.stdout + result.stderr)
            self.assertRegex(result.stderr, r"^E\d{4} ")

    def test_not_a_model(self):
        self.run_model((3,), b"")
        self.run_model((3,), b"\xff" * 100)
        self.run_model((3,), b"hello world")
        self.fails(3, "E0101", "run", self.path("missing.onnx"))
        self.fails(3, "E0101", "run", self.folder)

    def test_truncated(self):
        whole = linear_model()
        for length in range(1, len(whole), 7):
            model = self.write("cut.onnx", whole[:length])
            result = call("inspect", model)
            self.assertIn(result.returncode, (0, 3, 4), result.stderr)

    def test_cycle(self):
        nodes = [ox.node("Add", ["x", "b"], ["a"], "first"), ox.node("Neg", ["a"], ["b"], "second")]
        self.run_model((3,), ox.model(ox.graph(nodes, [ox.value_info("x", ox.FLOAT, [1])],
                                               [ox.value_info("a", ox.FLOAT, [1])])))

    def test_names(self):
        x, y = ox.value_info("x", ox.FLOAT, [1]), ox.value_info("y", ox.FLOAT, [1])
        self.run_model((3,), ox.model(ox.graph([ox.node("Neg", ["nothing"], ["y"])], [x], [y])))
        self.run_model((3,), ox.model(ox.graph([ox.node("Neg", ["x"], ["z"])], [x], [y])))
        self.run_model((3,), ox.model(ox.graph([ox.node("Neg", ["x"], ["y"]), ox.node("Abs", ["x"], ["y"])], [x], [y])))

    def test_unsupported_operators_are_listed_at_once(self):
        nodes = [ox.node("Frobnicate", ["x"], ["a"], "one"), ox.node("Frobnicate", ["a"], ["b"], "two"),
                 ox.node("Twiddle", ["b"], ["y"], "three", domain="com.example")]
        model = self.write("strange.onnx", ox.model(ox.graph(nodes, [ox.value_info("x", ox.FLOAT, [1])],
                                                             [ox.value_info("y", ox.FLOAT, [1])])))
        self.fails(4, "E0401", "run", model, says=["Frobnicate (2 nodes: 'one', 'two')", "com.example.Twiddle"])
        found = self.json_of("inspect", model)["unsupported"]
        self.assertEqual(found, [{"op": "Frobnicate", "count": 2, "nodes": ["one", "two"]},
                                 {"op": "com.example.Twiddle", "count": 1, "nodes": ["three"]}])

    def test_external_data_stays_in_the_folder(self):
        self.write("secret/w.bin", ox.floats([1, 2]))
        os.symlink(self.path("secret/w.bin"), self.path("inside-link"))
        os.makedirs(self.path("models"))
        os.symlink(self.path("secret/w.bin"), self.path("models/link"))
        self.write("models/w.bin", ox.floats([1, 2]))
        for location, exit_code in (({"location": "w.bin"}, 0), ({"location": "../secret/w.bin"}, 3),
                                    ({"location": self.path("secret/w.bin")}, 3), ({"location": "link"}, 3),
                                    ({"location": "w.bin", "offset": 4, "length": 8}, 3),
                                    ({"location": "w.bin", "offset": -4}, 3), ({"location": "missing"}, 3)):
            weights = [ox.tensor("w", ox.FLOAT, [2], b"", location)]
            data = ox.model(ox.graph([ox.node("Add", ["x", "w"], ["y"])], [ox.value_info("x", ox.FLOAT, [2])],
                                     [ox.value_info("y", ox.FLOAT, [2])], weights))
            result = call("run", self.write("models/external.onnx", data), "--input", "x=random")
            self.assertEqual(result.returncode, exit_code, f"{location}: {result.stderr}")

    def test_impossible_shapes(self):
        for dims in ([-5], [1 << 40, 1 << 40]):
            weights = [ox.tensor("w", ox.FLOAT, dims, ox.floats([1]))]
            self.run_model((3,), ox.model(ox.graph([ox.node("Add", ["x", "w"], ["y"])],
                                                   [ox.value_info("x", ox.FLOAT, [1])],
                                                   [ox.value_info("y", ox.FLOAT, [1])], weights)))


class Json(Folder):
    def test_bench(self):
        answer = self.json_of("bench", self.model, "--dim", "batch=2", "--runs", "3", "--threads", "1")
        for field in ("median_ms", "min_ms", "p90_ms", "load_ms", "runs", "threads", "isa", "precision",
                      "peak_activation_bytes", "live_set_bound_bytes", "resident_bytes", "resident_peak_bytes", "nodes",
                      "kernels", "bytes_moved", "flops", "percent_of_limit"):
            self.assertIn(field, answer)
        self.assertEqual((answer["runs"], answer["threads"]), (3, 1))
        self.assertLessEqual(answer["min_ms"], answer["median_ms"])
        self.assertGreaterEqual(answer["flops"], 2 * 2 * 3 * 2)

    def test_inspect(self):
        answer = self.json_of("inspect", self.model)
        self.assertEqual(answer["inputs"], [{"name": "x", "dtype": "f32", "shape": ["batch", 3],
                                             "type": "f32[batch, 3]"}])
        self.assertEqual(answer["outputs"][0]["name"], "y")
        self.assertEqual(answer["parameters"], 8)
        self.assertEqual(answer["unsupported"], [])
        self.assertIsNone(answer["flops"])
        self.assertGreaterEqual(self.json_of("inspect", self.model, "--dim", "batch=2")["flops"], 24)

    def test_verify(self):
        answer = self.json_of("verify", self.model, "--dim", "batch=2")
        self.assertTrue(answer["ok"])
        self.assertEqual(answer["worst"]["value"], "y")
        self.assertIsNone(answer["culprit"])

    def test_progress_stays_off_pipes(self):
        self.assertEqual(call("bench", self.model, "--dim", "batch=2", "--runs", "2").stderr, "")


class Formats(Folder):
    def test_artifact(self):
        tess = self.path("model.tess")
        self.assertGreaterEqual(self.json_of("compile", self.model, "-o", tess)["kernels"], 1)
        for batch in (1, 5):
            for model in (self.model, tess):
                self.json_of("run", model, "--input", f"x=random:{batch},3", "--output-dir", self.folder)
                with open(self.path("y.npy"), "rb") as file:
                    written = file.read()
                first = written if model == self.model else first
            self.assertEqual(written, first)
        self.assertEqual(self.json_of("inspect", tess)["inputs"], self.json_of("inspect", self.model)["inputs"])
        self.fails(4, "E0402", "run", tess, "--reference", "--input", f"x={self.x}")
        self.fails(5, "E0102", "compile", self.model, "-o", self.path("missing/model.tess"))

    def test_damaged_artifact(self):
        tess = self.path("model.tess")
        self.json_of("compile", self.model, "-o", tess)
        with open(tess, "rb") as file:
            whole = file.read()
        for position in range(0, min(len(whole), 600), 11):
            damaged = bytearray(whole)
            damaged[position] ^= 0x5A
            result = call("run", self.write("bad.tess", bytes(damaged)), "--input", f"x={self.x}")
            self.assertIn(result.returncode, (0, 3), f"byte {position}: {result.stderr}")
        result = call("run", self.write("bad.tess", whole[:100]), "--input", f"x={self.x}")
        self.assertEqual(result.returncode, 3, result.stderr)

    def test_text(self):
        graph = self.write("double.tg", b"""graph "double" {
  dim n
  in %0 "x": f32[n]
  %1 "y": f32[n] = add(%0, %0)
  out %1 "y"
}
""")
        for mode in ((), ("--reference",)):
            answer = self.json_of("run", graph, "--input", "x=random:4", *mode)
            self.assertEqual(answer["outputs"][0]["shape"], [4])
        self.assertIn("add(%0, %0)", call("inspect", graph, "--text").stdout)
        self.assertIn("in %0", call("inspect", self.model, "--text").stdout)
        self.fails(3, "E0205", "run", self.write("bad.tg", b'graph "x" { nonsense }'))


class Conformance(Folder):
    def case(self, name, expected, model=None):
        self.write(f"cases/{name}/model.onnx", model or linear_model())
        self.write(f"cases/{name}/test_data_set_0/input_0.pb", ox.tensor("x", ox.FLOAT, [1, 3], ox.floats([1, 1, 1])))
        self.write(f"cases/{name}/test_data_set_0/output_0.pb", ox.tensor("y", ox.FLOAT, [1, 2], ox.floats(expected)))

    def test_counts_reasons_and_exit_codes(self):
        self.case("a_right", [19, 32])
        result = call("conformance", self.path("cases"))
        self.assertEqual((result.returncode, result.stdout), (0, "1 passed, 0 failed, 0 skipped\n"))
        self.case("b_wrong", [19, 33])
        self.case("c_broken", [19, 32], model=b"\x08")
        self.case("d_left_out", [0, 0])
        skips = self.write("skips.txt", b"# why\n\nd_*   it is wrong on purpose\n")
        for mode in ((), ("--reference",)):
            result = call("conformance", self.path("cases"), "--skips", skips, *mode)
            self.assertEqual(result.returncode, 1)
            self.assertTrue(result.stdout.endswith("1 passed, 2 failed, 1 skipped\n"), result.stdout)
            self.assertIn("32, expected 33", result.stdout)
        answer = self.json_of("conformance", self.path("cases"), "--skips", skips, exit_code=1)
        self.assertEqual((answer["passed"], answer["failed"], answer["skipped"]), (1, 2, 1))
        self.assertEqual([c["status"] for c in answer["cases"]], ["passed", "failed", "failed", "skipped"])
        self.assertEqual(answer["cases"][3]["why"], "it is wrong on purpose")

    def test_shape_only(self):
        self.case("random", [20, 30])
        skips = self.write("skips.txt", b"random shape-only drawn at random\n")
        self.assertEqual(call("conformance", self.path("cases"), "--skips", skips).returncode, 0)
        self.case("random", [1, 2])
        self.assertEqual(call("conformance", self.path("cases"), "--skips", skips).returncode, 1)

    def test_bad_folders_and_files(self):
        self.fails(3, "E0101", "conformance", self.path("missing"))
        self.fails(3, "E0101", "conformance", self.folder)
        self.case("a", [19, 32])
        self.fails(3, "E0104", "conformance", self.path("cases"), "--skips", self.write("skips.txt", b"a\n"))


if __name__ == "__main__":
    TESSERA = os.path.abspath(sys.argv.pop(1))
    unittest.main()
