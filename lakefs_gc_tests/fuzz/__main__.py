"""Search for inputs that break a parser: ``python -m lakefs_gc_tests.fuzz TARGET [TARGET ...] --seconds N``.

With several targets (or ``all``) each runs in a separate process, one after the other, with an equal part of the time.
Prints the number of inputs of each target. Ends with 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_MOST_BYTES = 8192
_FRESH = 3
_GRACE_SECONDS = 120
_OVER = "\nDone "
_NAMES = r"^        Target\(\"(\w+)\""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lakefs_gc_tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="+", help="names of targets, or all")
    parser.add_argument("--seconds", type=int, default=60, help="together, for all targets")
    parser.add_argument("--findings", type=Path, default=Path("findings"), help="where to write what breaks a parser")
    parser.add_argument("--corpus", type=Path, help="a folder to keep new inputs in, by target (default: none kept)")
    parser.add_argument("--replay", type=Path, help="run one file, and nothing else")
    given = parser.parse_args()
    # Do not import the table here, because the first import decides whether the decoder is compiled.
    known = re.findall(_NAMES, Path(__file__).with_name("targets.py").read_text(), re.MULTILINE)
    targets = known if given.targets == ["all"] else given.targets
    if unknown := set(targets) - set(known):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if len(targets) == 1:
        return _search(targets[0], given.seconds, given.findings, given.corpus, given.replay)
    return max(_in_a_process(target, given.seconds // len(targets), given) for target in targets)


def _in_a_process(target: str, seconds: int, given: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "lakefs_gc_tests.fuzz", target, "--seconds", str(seconds)]
    command += ["--findings", str(given.findings)]
    command += ["--corpus", str(given.corpus)] if given.corpus else []
    began, executions = time.monotonic(), 0
    ends: list[int] = []
    # libFuzzer ends at the first finding, so it is restarted until its time is over, up to a maximum.
    while (left := seconds - (time.monotonic() - began)) > 5 and len(ends) < 5 and 0 not in ends:
        command[5] = str(int(left))
        try:
            ended = subprocess.run(command, capture_output=True, check=False, timeout=left + _GRACE_SECONDS)
            output, code = ended.stderr.decode(errors="replace"), ended.returncode
        except subprocess.TimeoutExpired as hung:
            output = (hung.stderr or b"").decode(errors="replace")
            code = 0 if _OVER in output else -1  # Python itself hung at its exit once, not a parser
        counts = re.findall(r"^#(\d+)|number_of_executed_units: (\d+)", output, re.MULTILINE)
        executions += max((int(first or second) for first, second in counts), default=0)
        ends.append(code)
        if code:
            sys.stdout.write(output[-3000:])
    found = sum(end != 0 for end in ends)
    line = {"target": target, "seconds": round(time.monotonic() - began), "executions": executions, "findings": found}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    return int(found > 0)


def _compiled_modules() -> list[str]:
    from lakefs_gc.formats.jit import COMPILED_MODULES

    return [f"lakefs_gc.{name.removesuffix('.py').replace('/', '.')}" for name in COMPILED_MODULES]


def _search(name: str, seconds: int, findings: Path, corpus: Path | None, replay: Path | None) -> int:
    import atheris
    import pyarrow as pa

    if name.endswith("_interpreted"):
        with atheris.instrument_imports(include=["lakefs_gc.formats"], exclude=[]):
            from lakefs_gc_tests.fuzz.interpreted import interpret

            interpret()
    compiled = [] if name.endswith("_interpreted") else _compiled_modules()
    with atheris.instrument_imports(include=["lakefs_gc", "yaml", "tomllib"], exclude=compiled):
        importlib.import_module("lakefs_gc.engine.undo.backup")  # imports of the targets at their first call
        from lakefs_gc_tests.fuzz.targets import TARGETS

    # One core, so that it can run beside other work.
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    target = TARGETS[name]
    if replay is not None:
        sys.stdout.write(f"{target.run(replay.read_bytes())!r:.2000}\n")
        return 0
    findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lakefs-gc-fuzz-") as folder:
        start = Path(folder) / "seeds"
        start.mkdir()
        for number, seed in enumerate([*target.seeds(), *(file.read_bytes() for file in target.corpus)]):
            (start / f"{number:04}").write_bytes(seed)
        kept = corpus / name if corpus else Path(folder) / "new"
        kept.mkdir(parents=True, exist_ok=True)
        options = [
            f"-max_total_time={seconds}",
            f"-max_len={_MOST_BYTES}",
            "-timeout=20",
            "-rss_limit_mb=3000",
            f"-artifact_prefix={findings.absolute()}/{name}-",
            "-print_final_stats=1",
            str(kept),
            str(start),
        ]
        seeds = target.seeds()

        def mutate(data: bytes, most_bytes: int, number: int) -> bytes:
            # Without coverage of compiled code libFuzzer drops good files, so start again from one from time to time.
            changed = bytes(seeds[number // _FRESH % len(seeds)] if number % _FRESH == 0 else data)
            for _ in range(number % 3 + 1):
                changed = atheris.Mutate(changed, len(changed) if number & 1 else most_bytes) if changed else b"\0"
            return changed

        def run(data: bytes) -> None:
            target.run(bytes(data))

        atheris.Setup([sys.argv[0], *options], run, custom_mutator=mutate)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
