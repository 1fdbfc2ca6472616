"""Many parallel calls with few results in memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_unordered(
    function: Callable[[Item], Result], items: Iterable[Item], concurrency: int, *, wait_for_all: bool = False
) -> Generator[tuple[Item, Result]]:
    """Yield ``(item, function(item))`` in order of completion, computed by ``concurrency`` threads.

    At most ``concurrency`` results wait for the caller. The first error is raised at once. Calls that have not begun by
    then, or when the iterator is closed, are dropped. With ``wait_for_all``, calls that have begun are waited for.
    If the loop over such an iterator may raise, close it with ``contextlib.closing``. Otherwise the error does not wait
    for these calls, and the garbage collector closes the iterator later, possibly in a thread that must not wait.
    """
    source = iter(items)
    executor = ThreadPoolExecutor(max(1, concurrency), thread_name_prefix="store")
    pending: dict[Future[Result], Item] = {}
    finished: SimpleQueue[Future[Result]] = SimpleQueue()

    def begin_next() -> None:
        for item in islice(source, 1):
            future = executor.submit(function, item)
            pending[future] = item
            future.add_done_callback(finished.put)

    try:
        for _ in range(max(1, concurrency)):
            begin_next()
        while pending:
            future = finished.get()
            item, result = pending.pop(future), future.result()
            # Before the yield: otherwise no call would run while the caller works on this result.
            begin_next()
            yield item, result
    finally:
        executor.shutdown(wait=wait_for_all, cancel_futures=True)
