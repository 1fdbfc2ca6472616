"""Work of a later stage that begins earlier, while the run would only wait.

The server needs seconds for its lists. Meanwhile an earlier stage of the same process can work, as far as rule 1
permits that order. The stage that the work belongs to takes the result. If there is none (the stages run in several
processes, or one is materialized again), it does the work itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any


class Ahead:
    """The work that was begun in this process, by its name and what it is for. Several threads may use it."""

    def __init__(self) -> None:
        self._begun: dict[tuple[Hashable, str], Future[Any]] = {}

    def begin(self, run: Hashable, name: str, work: Callable[[], Any]) -> None:
        """Begin work for a run in a thread, unless it was begun and not taken yet."""
        begun: Future[Any] = Future()
        if self._begun.setdefault((run, name), begun) is begun:
            threading.Thread(target=_do, args=(begun, work), name=f"ahead-{name}", daemon=True).start()

    def keep(self, run: Hashable, name: str, result: Any) -> None:
        """Keep the result of work that is done, until it is taken."""
        done: Future[Any] = Future()
        done.set_result(result)
        self._begun[run, name] = done

    def wait(self, run: Hashable, name: str) -> None:
        """Wait for the work, if it was begun and not taken yet. Raises nothing."""
        begun = self._begun.get((run, name))
        if begun is not None:
            begun.exception()

    def has(self, run: Hashable, name: str) -> bool:
        """Return whether the work was begun and not taken yet."""
        return (run, name) in self._begun

    def take(self, run: Hashable, name: str) -> Any:
        """Wait for the work and return its result, once; None if it was not begun. Raises what the work raises."""
        begun = self._begun.pop((run, name), None)
        return None if begun is None else begun.result()


def _do(begun: Future[Any], work: Callable[[], Any]) -> None:
    try:
        begun.set_result(work())
    except BaseException as error:  # raised where the result is taken
        begun.set_exception(error)
