"""Remove each safety rule from a copy of the code, and report the failing test: ``python -m lakefs_gc_tests.mutants``.

``--rule N`` runs only the mutants of one rule, ``--named TEXT`` those with this text in the name of what they remove,
and ``--jobs N`` so many at once: with two of them, all take about 90 minutes on two cores. Prints a table. Ends with 1
if a mutant survived.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc_tests.mutants.mutant import PACKAGE, Mutant
from lakefs_gc_tests.mutants.table import MUTANTS

_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*_cache")
_MOST_SECONDS = 900
_SOME_TEST_FAILED = 1  # pytest's exit code
_FAILED = re.compile(r"^(?:FAILED|ERROR) \S*::(\w+)", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lakefs_gc_tests.mutants", description=__doc__)
    parser.add_argument("--rule", type=int, choices=sorted({mutant.rule for mutant in MUTANTS}))
    parser.add_argument("--named", default="", help="only mutants with this text in the name of what they remove")
    parser.add_argument("--jobs", type=int, default=1, help="so many at once; each may start a Spark session")
    options = parser.parse_args()
    chosen = [each for each in MUTANTS if options.rule in (None, each.rule) and options.named in each.removed_rule]
    if not chosen:
        parser.error("there are no such mutants")
    folders, survived = SimpleQueue[Path](), 0
    sys.stdout.write("| rule | removed | file | failing test |\n| --- | --- | --- | --- |\n")
    with tempfile.TemporaryDirectory(prefix="lakefs-gc-mutants-") as parent:
        for number in range(options.jobs):
            folders.put(_copy_to(Path(parent) / str(number)))

        def killer(mutant: Mutant) -> str:
            folder = folders.get()
            try:
                return _killer(mutant, folder)
            finally:
                folders.put(folder)

        with closing(map_unordered(killer, chosen, options.jobs)) as killers:
            for mutant, test in killers:
                survived += not test
                row = (str(mutant.rule), mutant.removed_rule, f"`{mutant.file}`", test or "SURVIVED")
                sys.stdout.write(f"| {' | '.join(row)} |\n")
                sys.stdout.flush()
    return int(survived > 0)


def _copy_to(folder: Path) -> Path:
    """Copy what a mutant changes, and its tests."""
    for package in (PACKAGE, PACKAGE.with_name("lakefs_gc_tests")):
        shutil.copytree(package, folder / package.name, ignore=_LEFT_OUT)
    shutil.copy(PACKAGE.with_name("pyproject.toml"), folder)
    return folder


def _killer(mutant: Mutant, folder: Path) -> str:
    """Return the first test that fails with the mutant in a copy of the project, or an empty string."""
    file = folder / PACKAGE.name / mutant.file
    source = file.read_text()
    file.write_text(mutant.applied(source))
    only = ["-k", mutant.only] if mutant.only else []
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *only]
    try:
        ended = subprocess.run(
            [*command, f"lakefs_gc_tests/{mutant.test}"],
            cwd=folder,
            env={**os.environ, "CI": "1", "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=_MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""  # a test that does not end did not fail
    finally:
        file.write_text(source)
    if ended.returncode not in (0, _SOME_TEST_FAILED):  # no test was run, so the mutant may have survived
        raise RuntimeError(f"{mutant.test} could not be run: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    match = _FAILED.search(ended.stdout)
    return f"`{mutant.test}`: {match[1]}" if ended.returncode and match else ""


if __name__ == "__main__":
    sys.exit(main())
