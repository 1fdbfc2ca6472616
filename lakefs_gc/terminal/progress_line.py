"""One line on a terminal: the command, how long it has run, and what it is doing."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.text import Text

from lakefs_gc.engine.progress import RUN_PROGRESS, Progress

_REFRESH_SECONDS = 0.5


class ProgressLine:
    """A renderable that is current whenever rich draws it. Spark is asked twice a second at most."""

    def __init__(
        self, command: str, progress: Progress = RUN_PROGRESS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._command, self._progress, self._clock = command, progress, clock
        self._began = clock()
        self._drawn, self._text = -_REFRESH_SECONDS, ""

    def __rich__(self) -> Text:
        """Return the line, which is cut to the width of the terminal."""
        now = self._clock()
        if now - self._drawn >= _REFRESH_SECONDS:
            self._drawn = now
            minutes, seconds = divmod(int(now - self._began), 60)
            snapshot = self._progress.snapshot()
            self._text = f"{self._command}, {minutes}:{seconds:02}" + (f"  {snapshot}" if snapshot else "")
        return Text(self._text, no_wrap=True, overflow="ellipsis")
