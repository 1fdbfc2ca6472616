"""The output of a benchmark: a table, JSON and a plot (SVG)."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from rich.table import Table

from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Figure

_MAIN_FIGURES = ("wall_s", "client_cpu_s", "driver_peak_mib", "requests", "slow_downs")
_COLUMNS = 3
_ROW_HEIGHT, _NAME_WIDTH, _BAR_WIDTH, _FIGURE_WIDTH = 26, 320, 420, 160


def ratio(benchmark: Benchmark, case: Case, baseline: Case | None) -> float | None:
    """Return the improvement over the baseline, or None if they cannot be compared."""
    if case.ratio is not None:
        return case.ratio
    if baseline is None or benchmark.compare not in case.figures or benchmark.compare not in baseline.figures:
        return None
    own, theirs = float(case.figures[benchmark.compare]), float(baseline.figures[benchmark.compare])
    better, worse = (own, theirs) if benchmark.higher_is_better else (theirs, own)
    return better / worse if worse else None


def baselines_of(cases: Sequence[Case]) -> list[Case | None]:
    """Return the baseline of each case: the last one up to the case, or the first of all."""
    found = next((case for case in cases if case.baseline), None)
    return [found := case if case.baseline else found for case in cases]


def to_table(benchmark: Benchmark, cases: Sequence[Case]) -> Table:
    """Return a table with the main figures, and the ratio to the baseline. Fits into a terminal of 80 columns."""
    baselines = baselines_of(cases)
    has_baseline = any(baselines)
    every = dict.fromkeys(name for case in cases for name in case.figures)
    names = [name for name in dict.fromkeys((benchmark.compare, *_MAIN_FIGURES, *every)) if name in every][:_COLUMNS]
    omitted = len(every) - len(names)
    caption = f"{omitted} more figures are in the JSON that --out writes" if omitted else None
    header = ("case", *names, *(["× baseline"] if has_baseline else []))
    table = Table(*header, title=benchmark.title, caption=caption)
    for column in table.columns[1:]:
        column.justify = "right"
    for case, baseline in zip(cases, baselines, strict=True):
        row = [case.name, *(_text(case.figures.get(name, "")) for name in names)]
        if has_baseline:
            times = ratio(benchmark, case, baseline)
            row.append("baseline" if case is baseline else "" if times is None else f"{times:.2f}")
        table.add_row(*row)
    return table


def to_json(name: str, benchmark: Benchmark, cases: Sequence[Case]) -> bytes:
    """Return all measurements, and the description of the machine."""
    content: dict[str, Any] = {
        "benchmark": name,
        "title": benchmark.title,
        "compared_by": benchmark.compare,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "load_1_minute": round(os.getloadavg()[0], 2),
            "python": platform.python_version(),
            "system": platform.system(),
            "architecture": platform.machine(),
        },
        "cases": [
            {
                "case": case.name,
                "baseline": case.baseline,
                "ratio": ratio(benchmark, case, baseline),
                **case.figures,
            }
            for case, baseline in zip(cases, baselines_of(cases), strict=True)
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"


def to_svg(benchmark: Benchmark, cases: Sequence[Case]) -> str:
    """Return a bar chart of the compared figure, with one bar for each case."""
    shown = [case for case in cases if benchmark.compare in case.figures]
    longest = max((float(case.figures[benchmark.compare]) for case in shown), default=0.0) or 1.0
    width, height = _NAME_WIDTH + _BAR_WIDTH + _FIGURE_WIDTH, _ROW_HEIGHT * (len(shown) + 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" font-weight="bold">{escape(f"{benchmark.title} ({benchmark.compare})")}</text>',
    ]
    for row, (case, baseline) in enumerate(zip(shown, baselines_of(shown), strict=True), start=1):
        value = float(case.figures[benchmark.compare])
        times = ratio(benchmark, case, baseline)
        note = "baseline" if case is baseline else f"× {times:.2f}" if times is not None else ""
        top, length = row * _ROW_HEIGHT + 8, round(_BAR_WIDTH * value / longest, 1)
        colour = "#999999" if case.baseline else "#2a7f62"
        lines += [
            f'<text x="{_NAME_WIDTH - 8}" y="{top + 14}" text-anchor="end">{escape(case.name)}</text>',
            f'<rect x="{_NAME_WIDTH}" y="{top}" width="{length}" height="{_ROW_HEIGHT - 8}" fill="{colour}"/>',
            f'<text x="{_NAME_WIDTH + length + 6}" y="{top + 14}">{escape(f"{_text(value)} {note}")}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def write(name: str, benchmark: Benchmark, cases: Sequence[Case], folder: Path) -> None:
    """Write ``<name>.json`` and ``<name>.svg``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_bytes(to_json(name, benchmark, cases))
    (folder / f"{name}.svg").write_text(to_svg(benchmark, cases), "utf-8")


def _text(figure: Figure) -> str:
    if isinstance(figure, str):
        return figure
    return f"{figure:,.0f}" if abs(figure) >= 100 or float(figure).is_integer() else f"{figure:.2f}"
