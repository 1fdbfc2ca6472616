"""All benchmarks by one command.

    python -m lakefs_gc_tests.benchmarks                      list the names and descriptions
    python -m lakefs_gc_tests.benchmarks listing decode       run these
        --out FOLDER                                          write <name>.json and <name>.svg there
        --set objects=2e6 --set latency_ms=30                 change the default sizes
    python -m lakefs_gc_tests.benchmarks spark_client --server URL --client-jar FILE --spark-home FOLDER
        --set namespace=s3://BUCKET/FOLDER                    compare with lakeFS's own client (see docs/scale.md)

A benchmark's ratios refer to a baseline of the same run. Figures of different runs are comparable only on an idle
machine.
"""

from __future__ import annotations

import argparse
import importlib
import logging
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lakefs_gc.errors import LakeFSGCError
from lakefs_gc_tests.benchmarks import report
from lakefs_gc_tests.benchmarks.harness import Benchmark, Options

MODULES = (
    "listing",
    "decode",
    "committed",
    "candidates",
    "end_to_end",
    "explain",
    "sweep",
    "vendors",
    "driver_memory",
    "prepare_uncommitted",
    "spark_client",
)
"""The modules of this package with a ``BENCHMARK``. Add new ones here."""


_OPTIONS = (
    ("server", "URL", "for spark_client: the lakeFS server"),
    ("client-jar", "FILE", "for spark_client: the assembly jar of lakeFS's Spark client"),
    ("spark-home", "FOLDER", "for spark_client: the Spark that runs it"),
)
"""Settings that are also options."""


def load(name: str) -> Benchmark:
    """Return the benchmark of a module."""
    benchmark = importlib.import_module(f"{__package__}.{name}").BENCHMARK
    if not isinstance(benchmark, Benchmark):
        raise TypeError(f"{name}.BENCHMARK is not a Benchmark")
    return benchmark


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description="Run benchmarks.")
    parser.add_argument("names", nargs="*", choices=[[], *MODULES], help="which to run; none: list them")
    parser.add_argument("--out", type=Path, help="folder for JSON and SVG")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the benchmark")
    for name, metavar, meaning in _OPTIONS:
        parser.add_argument(f"--{name}", metavar=metavar, help=meaning)
    parsed = parser.parse_args(arguments)
    settings = dict(text.partition("=")[::2] for text in parsed.set)
    for option, _, _ in _OPTIONS:
        setting = option.replace("-", "_")
        if value := getattr(parsed, setting):
            settings[setting] = value
    console = Console()
    logging.basicConfig(format="%(message)s")
    logging.getLogger(__package__).setLevel(logging.INFO)
    if not parsed.names:
        for name in MODULES:
            benchmark = load(name)
            console.print(f"[bold]{name}[/]  {benchmark.title}", highlight=False)
            for setting, meaning in benchmark.settings.items():
                console.print(f"    --set {setting}=...  {meaning}", highlight=False, markup=False)
        return
    for name in parsed.names:
        benchmark = load(name)
        cases = []
        try:
            with console.status(f"{name} ...") as status:
                for case in benchmark.measure(Options(settings)):
                    cases.append(case)
                    status.update(f"{name}: {case.name} measured ...")
        except LakeFSGCError as error:
            parser.exit(error.exit_code, f"{name}: {error}\n")
        console.print(report.to_table(benchmark, cases))
        if parsed.out:
            report.write(name, benchmark, cases, parsed.out)


if __name__ == "__main__":
    main()
