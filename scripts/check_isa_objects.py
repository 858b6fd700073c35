#!/usr/bin/env python3
"""check_isa_objects.py NM OBJECT...: fails unless each object of src/kernels/isa exports its family table and nothing else.

A weak symbol (an inline function or template compiled for AVX-512, say) could be the copy that the linker keeps for the
whole program, which then dies on a CPU without AVX-512.
"""
import pathlib
import re
import subprocess
import sys


def check(nm, path):
    isa = re.search(r"tessera_isa_(\w+)\.dir", path).group(1)
    family = pathlib.Path(path).name.split(".")[0]
    lines = subprocess.run([nm, "-g", path], check=True, capture_output=True, text=True).stdout.splitlines()
    symbols = [(line.split()[-2], line.split()[-1]) for line in lines]
    expected = f"tessera_{family}_{isa}"
    problems = [f"exports {name} ({kind})" for kind, name in symbols if kind not in "Uwv" and name != expected]
    if not any(name == expected and kind not in "Uwv" for kind, name in symbols):
        problems.append(f"does not export {expected}")
    # Undefined C++ names mean that something beyond C's library and the compiler's runtime is called.
    problems += [f"needs {name}" for kind, name in symbols if kind in "Uwv" and name.startswith("_Z")]
    return [f"{family} ({isa}) {problem}" for problem in problems]


def main():
    nm, objects = sys.argv[1], sys.argv[2:]
    if not objects:
        sys.exit("no objects given")
    problems = [problem for path in objects for problem in check(nm, path)]
    print("\n".join(problems) or f"{len(objects)} objects export one symbol each")
    sys.exit(1 if problems else 0)


main()
