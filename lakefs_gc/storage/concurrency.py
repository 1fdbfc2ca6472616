"""Many calls at once, few results held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_unordered(
    function: Callable[[Item], Result], items: Iterable[Item], concurrency: int, *, wait_for_all: bool = False
) -> Iterator[tuple[Item, Result]]:
    """``(item, function(item))`` in order of completion, by ``concurrency`` threads.

    At most ``concurrency`` results exist that the caller has not taken. The first error is raised at once;
    what has not begun by then, or when the iterator is closed, is dropped. With ``wait_for_all`` what has begun is
    waited for even then.
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
            # Before the caller is at work on this one: else calls that end together are followed by none meanwhile.
            begin_next()
            yield item, result
    finally:
        executor.shutdown(wait=wait_for_all, cancel_futures=True)
