#!/usr/bin/env python3
"""Writes docs/errors.md from include/tessera/error_codes.def; with --check, fails when the file is stale."""

import argparse
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "include/tessera/error_codes.def"
TARGET = ROOT / "docs/errors.md"

AREAS = {
    1: "Files and containers",
    2: "Models and graphs",
    3: "Types and shapes",
    4: "Operators",
    5: "Running",
    6: "Plans and artifacts",
    8: "Usage",
    9: "Bugs of ours",
}
EXITS = {
    2: "wrong usage",
    3: "bad input",
    4: "not supported",
    5: "a resource is missing: memory, disk, time",
    6: "interrupted",
    70: "a bug of ours",
}

STRING = r'"(?:[^"\\]|\\.)*"'
ENTRY = re.compile(
    rf"TESSERA_CODE\(\s*(\d+)\s*,\s*(\w+)\s*,\s*(\d+)\s*,\s*((?:{STRING}\s*)+),\s*((?:{STRING}\s*)+),\s*((?:{STRING}\s*)+)\)"
)


def entries(text):
    """The entries, each (number, name, exit code, title, cause, fix)."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
    found = []
    for number, name, exit_code, *texts in ENTRY.findall(lines):
        found.append((int(number), name, int(exit_code), *(ast.literal_eval(f"({t})") for t in texts)))
    if len(found) != lines.count("TESSERA_CODE("):
        sys.exit(f"{SOURCE}: {lines.count('TESSERA_CODE(')} entries, but only {len(found)} are understood")
    return found


def escape(text):
    """As a cell of a table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def page(codes):
    out = [
        "# Error codes",
        "",
        "Written by `scripts/error_docs.py` from `include/tessera/error_codes.def`; edit that file, not this page.",
        "`tessera explain E0312` says the same on the command line. A code never changes its meaning.",
        "",
        "The command exits with 0 when all went well, and otherwise with:",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in EXITS.items()),
    ]
    area = None
    for number, name, exit_code, title, cause, fix in codes:
        if number // 100 != area:
            area = number // 100
            if area not in AREAS:
                sys.exit(f"{SOURCE}: {name} is of area {area:02}xx, which {pathlib.Path(__file__).name} does not name")
            out += ["", f"## {AREAS[area]}", "", "| code | name | what | cause | what to do | exit |",
                    "|---|---|---|---|---|---|"]
        if exit_code not in EXITS:
            sys.exit(f"{SOURCE}: {name} exits with {exit_code}, which {pathlib.Path(__file__).name} does not explain")
        out.append(f"| E{number:04} | `{name}` | {escape(title)} | {escape(cause)} | {escape(fix)} | {exit_code} |")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when the page is stale")
    check = parser.parse_args().check
    wanted = page(entries(SOURCE.read_text(encoding="utf-8")))
    if not check:
        TARGET.parent.mkdir(exist_ok=True)
        TARGET.write_text(wanted, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != wanted:
        sys.exit("docs/errors.md is not what include/tessera/error_codes.def says: run scripts/error_docs.py")


if __name__ == "__main__":
    main()
