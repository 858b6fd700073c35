#!/usr/bin/env python3
"""Checks every #include of src/, include/ and examples/ against the layers of scripts/layers.txt.

usage: check_layers.py [--root FOLDER]   prints FILE:LINE and the reason of each wrong include; exit code 1 if there are any
       check_layers.py --self-test       proves on small made-up trees that each kind of wrong include is caught
"""
import argparse
import pathlib
import re
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".h", ".cpp", ".def", ".inc"}
# What sealed code may include besides its folders: headers that declare no inline C++ function.
SEALED_SYSTEM = re.compile(r"^([a-z0-9_]+\.h|cstdint|cstddef)$")


class Layers:
    """The parsed layers.txt: for each folder of src/, the set of folders that it may include."""

    def __init__(self, text):
        self.may, self.public, self.sealed, self.outside = {}, {}, {}, []
        columns, bridges = {}, []
        for number, line in enumerate(text.splitlines(), 1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            kind, colon, rest = (part.strip() for part in line.partition(":"))
            if not colon or not rest:
                raise ValueError(f"layers.txt:{number}: expected 'kind: ...', got '{line}'")
            if kind == "bridge":
                bridges.append(rest.split(" -> "))
            elif kind == "public":
                layer, headers = rest.split(" = ")
                self.public.update((header, layer) for header in headers.split())
            elif kind == "sealed":
                folder, allowed = rest.split(" -> ")
                self.sealed[folder] = set(allowed.split())
            elif kind == "outside":
                self.outside += rest.split()
            else:
                columns[kind] = [group.split() for group in rest.split("<")]
        shared = {folder for group in columns["shared"] for folder in group}
        everything = {folder for column in columns.values() for group in column for folder in group}
        top = {folder for group in columns["top"] for folder in group}
        for kind, groups in columns.items():
            below = set() if kind == "shared" else everything - top if kind == "top" else set(shared)
            for group in groups:
                for folder in group:
                    self.may[folder] = below | {folder}
                below = below | set(group)
        for user, used in bridges:
            self.may[user].add(used)

    def of_public(self, header):
        return self.public.get(header, self.public.get("*"))


def includes(path):
    """(line number, '<' or '"', name) of each include of a file."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            found.append((number, match.group(1), match.group(2)))
    return found


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in SOURCES and p.is_file()) if folder.is_dir() else []


def check_include(layers, user, quote, name, beside):
    """The reason why a file of layer `user` (None: outside src/) may not include `name`, or None."""
    first, slash, rest = name.partition("/")
    if ".." in pathlib.PurePosixPath(name).parts:
        return f"includes {name}: name it from src/, not through '..'"
    if first == "tessera" and slash:
        used = layers.of_public(rest)
        if user is not None and used not in layers.may[user]:
            return f"{user} includes {name}, which belongs to {used}"
        return None
    if user is None:
        return f"includes {name}: only public headers may be used here" if slash and first in layers.may else None
    if first in layers.may and slash:
        return None if first in layers.may[user] else f"{user} may not include {first} ({name})"
    if quote == '"' and not beside:
        return f"includes \"{name}\": no folder of layers.txt, and no file beside this one"
    return None


def check_sealed(root, layers):
    """Holds each sealed file, and every header of ours that it reaches, to its short list."""
    wrong = []
    for folder, allowed in layers.sealed.items():
        queue, seen = [(p, p) for p in sources(root / "src" / folder) if not p.stem.endswith("_test")], set()
        while queue:
            path, start = queue.pop()
            if path in seen:
                continue
            seen.add(path)
            for number, quote, name in includes(path):
                places = (root / "src" / name, root / "include" / name, path.parent / name)
                target = next((place for place in places if place.is_file()), places[-1])
                if quote == '"' and {name.split("/")[0], name} & (allowed | {target.name}) and target.is_file():
                    queue.append((target, start))
                elif quote == '"' or not (SEALED_SYSTEM.match(name) or name.split("/")[0] in allowed):
                    via = "" if path == start else f" (reached from {start.relative_to(root)})"
                    wrong.append((path, number, f"{folder} is sealed and may not include {name}{via}"))
    return wrong


def check(root, layers):
    """All wrong includes of the tree, as (path, line, reason), by place."""
    wrong = []
    for path in sources(root / "src"):
        folder = path.relative_to(root / "src").parts[0]
        if folder not in layers.may:
            wrong.append((path, 1, f"folder '{folder}' is not in layers.txt"))
            continue
        for number, quote, name in includes(path):
            reason = check_include(layers, folder, quote, name, (path.parent / name).is_file())
            if reason:
                wrong.append((path, number, reason))
    for path in sources(root / "include"):
        user = layers.of_public(path.relative_to(root / "include" / "tessera").as_posix())
        for number, quote, name in includes(path):
            if name.split("/")[0] in layers.may:
                wrong.append((path, number, f"a public header may not include {name}"))
            elif reason := check_include(layers, user, quote, name, (path.parent / name).is_file()):
                wrong.append((path, number, reason))
    for folder in layers.outside:
        for path in sources(root / folder):
            for number, quote, name in includes(path):
                if reason := check_include(layers, None, quote, name, True):
                    wrong.append((path, number, reason))
    return sorted(wrong + check_sealed(root, layers))


# (file, its text, what the report must say about it; None: it is right)
SELF_TEST = [
    ("src/tensor/a.h", '#include "base/result.h"', None),
    ("src/base/a.h", '#include "tensor/dim.h"', "base may not include tensor"),
    ("src/runtime/a.cpp", '#include "plan/plan.h"', None),
    ("src/plan/a.cpp", "\n\n#include <runtime/session.h>", "plan may not include runtime"),
    ("src/ir/a.cpp", '  #  include "text/bpe.h"', None),
    ("src/passes/a.cpp", '#include "import/onnx.h"', "passes may not include import"),
    ("src/compile/a.cpp", '#include "import/onnx.h"\n#include "plan/plan.h"', None),
    ("src/compile/b.cpp", '#include "kernels/abi.h"', "compile may not include kernels"),
    ("src/passes/b.cpp", '#include "plan/plan.h"', "passes may not include plan"),
    ("src/engine/a.cpp", '#include "runtime/session.h"\n#include "compile/compile.h"', None),
    ("src/engine/b.cpp", '#include "cli/main.h"', "engine may not include cli"),
    ("src/cli/a.cpp", '#include "python/module.h"', "cli may not include python"),
    ("src/base/b.cpp", '#include "tessera/error.h"', None),
    ("src/base/c.cpp", '#include "tessera/tensor.h"', "base includes tessera/tensor.h, which belongs to tensor"),
    ("src/runtime/b.cpp", '#include "tessera/session.h"', "runtime includes tessera/session.h, which belongs to engine"),
    ("src/base/d.cpp", '#include "../base/result.h"', "not through '..'"),
    ("src/base/e.cpp", '#include "nowhere.h"', "no file beside this one"),
    ("src/base/f.cpp", '// #include "tensor/dim.h"\n#include <vector>', None),
    ("src/odd/a.cpp", "", "folder 'odd' is not in layers.txt"),
    ("include/tessera/tensor.h", '#include "tessera/error.h"', None),
    ("include/tessera/error.h", '#include "base/result.h"', "a public header may not include base/result.h"),
    ("include/tessera/dtype.h", '#include "tessera/session.h"', "tensor includes tessera/session.h"),
    ("examples/a/main.cpp", '#include "tessera/session.h"\n#include "picture.h"', None),
    ("examples/a/wrong.cpp", '#include "runtime/session.h"', "only public headers may be used here"),
    ("src/kernels/abi.h", "#include <stdint.h>", None),
    ("src/kernels/fat.h", "#include <vector>", "reached from src/kernels/isa/reach.cpp"),
    ("src/kernels/isa/a.cpp", '#include <math.h>\n#include "kernels/abi.h"', None),
    ("src/kernels/isa/b.cpp", "#include <algorithm>", "sealed and may not include algorithm"),
    ("src/kernels/isa/c.cpp", '#include "base/result.h"', "sealed and may not include base/result.h"),
    ("src/kernels/isa/reach.cpp", '#include "kernels/fat.h"', None),
]


def self_test(layers):
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text, _ in SELF_TEST:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        wrong = check(root, layers)
        for name, text, expected in SELF_TEST:
            reasons = [reason for path, _, reason in wrong if path == root / name]
            if expected is None and reasons:
                failures.append(f"{name} is right, but: {reasons}")
            if expected is not None and not any(expected in reason for reason in reasons):
                failures.append(f"{name} should be reported with '{expected}', got {reasons}")
        lines = [number for path, number, _ in wrong if path == root / "src/plan/a.cpp"]
        if lines != [3]:
            failures.append(f"src/plan/a.cpp: line 3 should be reported, got {lines}")
    for failure in failures:
        print(f"self-test: {failure}")
    print(f"self-test: {len(SELF_TEST)} files, {len(failures)} failures")
    return 1 if failures else 0


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=here.parent)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    layers = Layers((here / "layers.txt").read_text(encoding="utf-8"))
    if options.self_test:
        return self_test(layers)
    wrong = check(options.root, layers)
    for path, number, reason in wrong:
        print(f"{path.relative_to(options.root)}:{number}: {reason}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
