#!/usr/bin/env python3
"""docs/operators.md from the lists of operators: those of the graph (the command's own list) and those read from ONNX.

usage: operator_docs.py TESSERA [--check]     TESSERA: the built command. With --check: exit 1 when the page is stale.
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "operators.md"
ONNX = ROOT / "src" / "import" / "onnx" / "onnx_ops.def"


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def page(command):
    out = subprocess.run([command, "ops", "--json"], check=True, capture_output=True, text=True).stdout
    ops = json.loads(out.strip().splitlines()[-1])["ops"]
    lines = ["# Operators", "",
             "Made by `scripts/operator_docs.py` from the lists; do not edit.", "",
             "## Of the graph", "",
             "A *primitive* has a reference in exact arithmetic; a *composite* is defined by its meaning in terms of others.", "",
             "| operator | kind | signature | types | what |", "|---|---|---|---|---|"]
    for op in ops:
        signature = f"`{cell(op['signature'])}`" if op["signature"] else ""
        lines.append(f"| `{op['name']}` | {op['kind']} | {signature} | {cell(op['types'])} | {cell(op['doc'])} |")
    versions = {}
    for domain, name, since in re.findall(r'^TESSERA_ONNX\("([^"]*)", "([^"]+)", (\d+),', ONNX.read_text(), re.M):
        versions.setdefault((domain, name), []).append(int(since))
    lines += ["", "## Read from ONNX", "",
              "Version 1 to 27 of the operator sets. Where the rules of a version stand apart, the versions from which each holds are given.", "",
              "| operator | domain | rules from version |", "|---|---|---|"]
    for (domain, name), since in sorted(versions.items(), key=lambda item: (item[0][0], item[0][1].lower())):
        lines.append(f"| {name} | {domain or 'ai.onnx'} | {', '.join(str(v) for v in sorted(since))} |")
    return "\n".join(lines) + "\n"


def main():
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    text = page(arguments[0])
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit(f"{PAGE.relative_to(ROOT)} is stale: run scripts/operator_docs.py build/release/bin/tessera")
        return
    PAGE.write_text(text)


main()
