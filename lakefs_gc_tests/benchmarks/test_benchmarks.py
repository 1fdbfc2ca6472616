"""The runner of the benchmarks measures correctly, and writes the results."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from lakefs_gc_tests.benchmarks import __main__ as command
from lakefs_gc_tests.benchmarks import report
from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Options, Usage, in_fresh_process, watched
from lakefs_gc_tests.benchmarks.prepare_uncommitted import measure_one

CASES = [Case("slow <one>", {"keys_per_s": 100, "wall_s": 2.0}, baseline=True), Case("quick", {"keys_per_s": 250.0})]


def benchmark(*, higher_is_better: bool = True) -> Benchmark:
    return Benchmark("A title", "keys_per_s", lambda options: iter(CASES), higher_is_better=higher_is_better)


def test_ratios_show_the_improvement() -> None:
    assert report.ratio(benchmark(), CASES[1], CASES[0]) == 2.5
    assert report.ratio(benchmark(higher_is_better=False), CASES[1], CASES[0]) == 0.4
    assert report.ratio(benchmark(), CASES[1], None) is None


def test_each_case_is_compared_with_the_baseline_before_it() -> None:
    cases = [*CASES, Case("another baseline", {"keys_per_s": 10}, baseline=True), Case("quicker", {"keys_per_s": 40})]
    console = Console(width=120, record=True, file=StringIO())
    console.print(report.to_table(benchmark(), cases))
    assert [number for number in console.export_text().split() if number in ("2.50", "4.00")] == ["2.50", "4.00"]


def test_results_are_written_as_table_json_and_plot(tmp_path: Path) -> None:
    console = Console(width=120, record=True, quiet=False, file=(tmp_path / "console").open("w"))
    console.print(report.to_table(benchmark(), CASES))
    text = console.export_text()
    assert "2.50" in text
    assert "baseline" in text
    report.write("name", benchmark(), CASES, tmp_path / "out")
    content = json.loads((tmp_path / "out" / "name.json").read_bytes())
    assert [(case["case"], case["ratio"]) for case in content["cases"]] == [("slow <one>", 1.0), ("quick", 2.5)]
    root = ElementTree.parse(tmp_path / "out" / "name.svg").getroot()
    bars = [float(bar.attrib["width"]) for bar in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert bars[1] == pytest.approx(2.5 * bars[0])


def test_the_table_has_the_main_figures_and_counts_the_others() -> None:
    figures = {f"figure_{number}": number for number in range(20)} | {"wall_s": 2.0, "keys_per_s": 100}
    table = report.to_table(benchmark(), [Case("only", figures)])
    assert [column.header for column in table.columns[:3]] == ["case", "keys_per_s", "wall_s"]
    assert len(table.columns) == 4, "the case and three figures"
    assert str(table.caption).startswith("19 more figures")


# Its memory is used after its processor time, so whoever has seen the memory has seen the time.
_CHILD = """
import sys, time
while time.process_time() < 2:
    pass
used = bytearray(100_000_000)
sys.stdin.read()
"""


def test_processor_time_and_memory_of_all_processes_are_measured() -> None:
    """In a fresh process, because this one may have emulators and Java as its children."""
    usage = in_fresh_process(measure_a_child)
    assert 0.25 < usage.cpu_seconds["driver"] < 1.5, "without the child's"
    assert usage.cpu_seconds["other"] > 1.5
    assert usage.peak_mib["other"] > 90
    assert usage.wall_seconds >= 1.5


def measure_a_child() -> Usage:
    """Return what was measured while a child took two seconds of processor time, and this process 0.3."""
    with watched() as usage, subprocess.Popen([sys.executable, "-c", _CHILD], stdin=subprocess.PIPE) as child:
        burn_until = time.process_time() + 0.3
        while time.process_time() < burn_until:
            pass
        waits_until = time.monotonic() + 120
        while usage.peak_mib.get("other", 0) < 90 and time.monotonic() < waits_until:
            time.sleep(0.05)
        child.communicate()
    return usage


def test_each_module_has_a_benchmark() -> None:
    assert all(command.load(name).title for name in command.MODULES)


def test_a_case_can_run_in_a_fresh_process() -> None:
    assert in_fresh_process(measure_one, 1000)["prepared"] == 1000


def test_settings() -> None:
    options = Options({"objects": "1e3,2e3", "latency_ms": "2.5"})
    assert options.counts("objects", (1,)) == (1000, 2000)
    assert (options.number("latency_ms", 30), options.count("other", 7)) == (2.5, 7)
