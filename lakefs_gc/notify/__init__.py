"""Tells people what a run has done or waits for."""

from lakefs_gc.notify.event import Event, EventKind, Notify

__all__ = ["Event", "EventKind", "Notify"]
