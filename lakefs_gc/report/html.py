"""The page of a mark as one HTML file: no script, no request to the network, and every text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from jinja2 import Environment, PackageLoader, StrictUndefined

from lakefs_gc.report.page import CurvePoint, MarkPage, NextState
from lakefs_gc.report.tables import tables
from lakefs_gc.report.words import at, percent
from lakefs_gc.units import human_bytes

_TONES = {
    NextState.blocked: "bad",
    NextState.failed: "bad",
    NextState.backup_missing: "warn",
    NextState.superseded: "warn",
    NextState.ready_later: "warn",
    NextState.policy: "warn",
    NextState.ready: "good",
    NextState.swept: "good",
}
_CURVE_WIDTH, _CURVE_HEIGHT = 640.0, 140.0
_LEAST_VISIBLE = 0.4
"""Per cent of a bar below which a part cannot be seen."""


@dataclass(frozen=True)
class Segment:
    """A part of a stacked bar: position and width in per cent of the bar."""

    name: str
    label: str
    start: float
    width: float


def as_html(page: MarkPage) -> str:
    """Return the page as HTML."""
    shown = {table.name: table for table in tables(page)}
    return (
        _environment()
        .get_template("mark.html.j2")
        .render(
            page=page,
            tone=_TONES.get(page.next.state, "neutral"),
            tables=shown,
            tiles=_tiles(page),
            bars=[("objects", _segments(page, of_bytes=False)), ("bytes", _segments(page, of_bytes=True))],
            most_bytes=max((row.listed_bytes for row in page.ages), default=0) or 1,
            curve=_curve(page.forecast),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("lakefs_gc.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"size": human_bytes, "at": at, "percent": percent}
    return environment


def _tiles(page: MarkPage) -> list[tuple[str, str, str]]:
    """Return label, value and note of the most important numbers."""
    steps = {step.name: step for step in page.funnel}
    marked = steps.get("marked")
    tiles = [
        ("marked objects", f"{page.objects:,}", f"{percent(marked.share_of_objects)} of the store" if marked else "")
    ]
    if page.marked:
        note = f"{percent(marked.share_of_bytes)} of the store" if marked else ""
        tiles.append(("marked bytes", human_bytes(page.marked.size_bytes), note))
    for name, label in (("live", "live"), ("newer", "newer than the cutoff"), ("kept", "kept")):
        if step := steps.get(name):
            tiles.append((label, f"{step.amount.objects:,}", human_bytes(step.amount.size_bytes)))
    return tiles


def _segments(page: MarkPage, *, of_bytes: bool) -> list[Segment]:
    segments, start = [], 0.0
    for step in page.funnel[1:]:
        share = step.share_of_bytes if of_bytes else step.share_of_objects
        if not step.is_detail and share > 0:
            segments.append(Segment(step.name, f"{step.label}: {percent(share)}", start, max(share, _LEAST_VISIBLE)))
            start += share
    return segments


def _curve(points: Sequence[CurvePoint]) -> str:
    """Return the points of an SVG polyline, or an empty text for fewer than two points."""
    if len(points) < 2:
        return ""
    days, most = max(point.days for point in points) or 1, max(point.size_bytes for point in points) or 1
    placed = [(_CURVE_WIDTH * point.days / days, _CURVE_HEIGHT * (1 - point.size_bytes / most)) for point in points]
    # Each value holds until the next point.
    corners = placed[:1]
    for (_, y_before), point in pairwise(placed):
        corners += [(point[0], y_before), point]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
