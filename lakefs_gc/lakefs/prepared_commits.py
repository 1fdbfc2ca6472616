"""Has the server list the active commits, and waits for it.

Source: lakeFS ``pkg/api`` (``PrepareGarbageCollectionCommitsAsync``, since 1.72).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from lakefs_gc.errors import IncompleteAnswerError, ServerError, ServerUnavailableError
from lakefs_gc.lakefs.models import PreparedCommits
from lakefs_gc.lakefs.pagination import INCOMPLETE_REMEDY

logger = logging.getLogger(__name__)

_POLL_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def prepared_commits(
    call: Callable[..., Any],
    internal: Any,
    repository: str,
    *,
    refuse_missing: Callable[[], object],
    timeout_seconds: float,
    sleep: Callable[[float], None],
) -> PreparedCommits:
    """Return the list that the server makes, as ``LakeFSClient.prepare_commits`` says.

    ``call`` calls a method of the SDK's ``internal`` API. ``refuse_missing`` raises if the repository does not exist.
    """
    what = f"prepare commits of {repository}"
    try:
        task = call(what, internal.prepare_garbage_collection_commits_async, repository)
    except ServerError as error:
        # lakeFS before 1.72 does not have the call, and answers 500. Make sure that the repository exists.
        status = error.facts.get("status")
        if status not in (404, 405, 501) and (status != 500 or error.transient):
            raise
        refuse_missing()
        logger.info("the server has no asynchronous prepare_commits: using the synchronous call")
        return _prepared(what, call(what, internal.prepare_garbage_collection_commits, repository))
    waited_seconds, polls = 0.0, 0
    while True:
        status = call(what, internal.prepare_garbage_collection_commits_status, repository, task.id)
        if status.task_id != task.id:
            raise IncompleteAnswerError(
                f"{what}: the answer is about task {status.task_id}, not {task.id}", remedy=INCOMPLETE_REMEDY
            )
        if status.completed:
            if status.error is not None:
                raise ServerError(
                    f"{what}: the server's task failed: {status.error.message}",
                    remedy="Check the log of the lakeFS server, then start a new run",
                )
            if status.result is None:
                raise IncompleteAnswerError(
                    f"{what}: the server's task ended without a result", remedy=INCOMPLETE_REMEDY
                )
            return _prepared(what, status.result)
        if waited_seconds > timeout_seconds:
            raise ServerUnavailableError(
                f"{what}: not finished after {waited_seconds:.0f} s",
                remedy="Check the load of the lakeFS server, or raise safety.prepare_timeout_hours",
            )
        pause = _POLL_SECONDS[min(polls, len(_POLL_SECONDS) - 1)]
        sleep(pause)
        waited_seconds, polls = waited_seconds + pause, polls + 1


def _prepared(what: str, answer: Any) -> PreparedCommits:
    if not answer.gc_commits_location:
        raise IncompleteAnswerError(
            f"{what}: the answer of the server does not name the file", remedy=INCOMPLETE_REMEDY
        )
    return PreparedCommits(answer.run_id, answer.gc_commits_location)
