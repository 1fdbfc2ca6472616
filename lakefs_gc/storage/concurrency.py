"""Many calls at once, few results held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_unordered(
    function: Callable[[Item], Result], items: Iterable[Item], concurrency: int, *, wait_for_all: bool = False
) -> Iterator[tuple[Item, Result]]:
    """``(item, function(item))`` in order of completion, by ``concurrency`` threads.

    At most ``concurrency`` results exist that the caller has not taken.  The first error is raised at once;
    what has not begun by then, or when the iterator is closed, is dropped.  With ``wait_for_all`` what has begun is
    waited for even then.
    """
    source = iter(items)
    executor = ThreadPoolExecutor(max(1, concurrency), thread_name_prefix="store")
    pending: dict[Future[Result], Item] = {}
    try:
        while True:
            for item in islice(source, max(1, concurrency) - len(pending)):
                pending[executor.submit(function, item)] = item
            if not pending:
                return
            finished, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                result = future.result()
                yield pending.pop(future), result
    finally:
        executor.shutdown(wait=wait_for_all, cancel_futures=True)
