"""A trace as text for people, and as values for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakefs_gc.hard_delete.explorer import Event, Trace


def format_trace(trace: Trace, *, afterwards: bool = True) -> list[str]:
    """Return the lines of a trace: each step with its operation and reply, and the damage at the end.

    Without ``afterwards``, the steps of the design's cleanup are omitted.
    """
    lines = _format_events(trace.events, 1)
    if trace.afterwards and afterwards:
        lines += ["later, the cleanup of the design:", *_format_events(trace.afterwards, len(trace.events) + 1)]
    return [*lines, f"=> {trace.kind}: {trace.detail}"]


def trace_facts(trace: Trace) -> dict[str, Any]:
    """Return a trace as values for JSON."""
    return {
        "broken": trace.kind.name.lower(),
        "meaning": str(trace.kind),
        "detail": trace.detail,
        "steps": [_fact(event) for event in trace.events],
        "afterwards": [_fact(event) for event in trace.afterwards],
    }


def _format_events(events: Sequence[Event], first: int) -> list[str]:
    width = max((len(event.operation) for event in events), default=0)
    return [
        f"{number:3}  {event.operation:{width}}  {event.text}" + (f"  -> {event.reply}" if event.reply else "")
        for number, event in enumerate(events, first)
    ]


def _fact(event: Event) -> dict[str, str]:
    return {"operation": event.operation, "step": event.text, "reply": event.reply}
