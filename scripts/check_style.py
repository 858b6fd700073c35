#!/usr/bin/env python3
"""Checks that hold for every source file of the project.

usage: check_style.py length   no source file is longer than 600 lines
       check_style.py format   clang-format would change nothing (exit code 77, for "skipped", without clang-format)
"""
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["include", "src", "tests", "bench", "examples", "scripts"]
LONGEST = 600  # lines: a longer file has a seam
SKIPPED = 77


def files(*suffixes):
    return sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.suffix in suffixes and p.is_file())


def check_length():
    wrong = 0
    for path in files(".h", ".cpp", ".py", ".sh"):
        lines = path.read_text(encoding="utf-8", errors="replace").count("\n")
        if lines > LONGEST:
            print(f"{path.relative_to(ROOT)}: {lines} lines, more than {LONGEST}")
            wrong += 1
    return 1 if wrong else 0


def check_format():
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not tool:
        print("skipped: clang-format is not installed (scripts/install.sh installs it)")
        return SKIPPED
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    if " 14." not in version:
        print(f"skipped: the format is that of clang-format 14, this is {version.strip()}")
        return SKIPPED
    run = subprocess.run([tool, "--dry-run", "--Werror", *map(str, files(".h", ".cpp"))], capture_output=True, text=True)
    wrong = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "-Wclang-format-violations" in line})
    for path in wrong:
        print(f"{pathlib.Path(path).relative_to(ROOT)}: not formatted; run clang-format -i on it")
    if run.returncode and not wrong:
        print(run.stderr.strip())
    return run.returncode


def main():
    checks = {"length": check_length, "format": check_format}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    return checks[sys.argv[1]]()


if __name__ == "__main__":
    sys.exit(main())
