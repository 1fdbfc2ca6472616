"""Run tasks in the background, and store their status for the calls that query it.

A status is stored as the API shows it, in JSON. It is stored before the task's id is returned. A task that a restart
interrupted is completed with an error, so that no client waits for it forever.
"""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable
from datetime import datetime
from typing import Any

from lakefs_gc.sandbox.clock import Clock
from lakefs_gc.sandbox.problems import ApiError, Conflict, NotFound
from lakefs_gc.sandbox.state.database import Database

PREPARE_COMMITS_PREFIX = "GCPC"
_ID_CHARACTERS = string.ascii_letters + string.digits + "_-"

Status = dict[str, Any]


def new_task_id(prefix: str) -> str:
    """Return an id in lakeFS's form: a prefix for the kind, and 20 characters."""
    return prefix + "".join(secrets.choice(_ID_CHARACTERS) for _ in range(20))


def shown_time(moment: datetime) -> str:
    """Return a time as the API writes it."""
    return moment.isoformat().replace("+00:00", "Z")


class Canceled(ApiError):  # noqa: N818 - the name of an outcome
    """The error that ends a cancelled task; the message is lakeFS's."""

    MESSAGE = "Canceled"

    def __init__(self) -> None:
        super().__init__(409, self.MESSAGE)


class Tasks:
    """The statuses of all tasks of all repositories."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def begin(self, repository: str, task_id: str, status: Status) -> None:
        """Store a new task, not completed."""
        self._put(repository, task_id, {**status, "completed": False})

    def complete(self, repository: str, task_id: str, outcome: Status) -> None:
        """Add the outcome to a task's status and mark it as completed."""
        with self._database.write():
            self._put(repository, task_id, {**self.status(repository, task_id), **outcome, "completed": True})

    def update(self, repository: str, task_id: str, progress: Status) -> None:
        """Add to a task's status. Raise ``Canceled`` if the task was cancelled."""
        with self._database.write():
            status = self.status(repository, task_id)
            if status.get("error"):
                raise Canceled
            self._put(repository, task_id, {**status, **progress})

    def cancel(self, repository: str, task_id: str) -> None:
        """Cancel a task. It ends without effect the next time that it reports its progress.

        Raise ``NotFound``, or ``Conflict`` if the task is completed.
        """
        with self._database.write():
            status = self.status(repository, task_id)
            if status["completed"]:
                raise Conflict
            self._put(repository, task_id, {**status, "error": {"message": Canceled.MESSAGE}})

    def status(self, repository: str, task_id: str) -> Status:
        """Return the status of a task as the API shows it. Raise ``NotFound``."""
        query = "SELECT status FROM tasks WHERE repository = ? AND id = ?"
        row = self._database.connection.execute(query, (repository, task_id)).fetchone()
        if row is None:
            raise NotFound
        status: Status = json.loads(row["status"])
        return status

    def fail_unfinished(self) -> None:
        """Complete all unfinished tasks with an error, at a start: their threads no longer exist."""
        rows = self._database.connection.execute("SELECT repository, id, status FROM tasks").fetchall()
        for row in rows:
            if not json.loads(row["status"])["completed"]:
                error = {"error": {"message": "interrupted by a restart of the server"}}
                self.complete(row["repository"], row["id"], error)

    def run(self, repository: str, task_id: str, work: Callable[[], Status]) -> Callable[[], None]:
        """Return a task that runs ``work`` and completes the status with its result or its failure."""

        def task() -> None:
            try:
                outcome = work()
            except Exception as error:
                message = getattr(error, "message", "") or f"internal error: {type(error).__name__}"
                outcome = {"error": {"message": message}}
                if not getattr(error, "message", ""):
                    self.complete(repository, task_id, outcome)
                    raise
            self.complete(repository, task_id, outcome)

        return task

    def _put(self, repository: str, task_id: str, status: Status) -> None:
        status = {**status, "update_time": shown_time(self._clock())}
        with self._database.write() as connection:
            values = (repository, task_id, json.dumps(status))
            connection.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?)", values)
