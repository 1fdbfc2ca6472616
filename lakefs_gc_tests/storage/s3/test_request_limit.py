"""A ceiling on requests in a second."""

from __future__ import annotations

import pytest

from lakefs_gc.storage.pace import RequestLimit


def test_a_limit_spaces_requests_out() -> None:
    now, waits = [0.0], []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    limit = RequestLimit(10, clock=lambda: now[0], sleep=sleep)
    for _ in range(4):
        limit.wait()
    assert waits == pytest.approx([0.1] * 3)
    now[0] += 5
    limit.wait()
    limit.wait()
    assert waits == pytest.approx([0.1] * 4), "a pause is not made up for by a burst"
