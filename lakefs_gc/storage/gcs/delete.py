"""Deletes in Google Cloud Storage: in batches, with the store's own answer for each object.

A delete has a condition on the generation, which is the version of the content (``ifGenerationMatch``). The parameter
``generation`` is not used: in a bucket that keeps versions, it deletes the version permanently.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus

from lakefs_gc.errors import StoreUnavailableError
from lakefs_gc.storage.base import Deletion, DeletionOutcome
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.delete_window import NOT_TRIED, DeleteWindow
from lakefs_gc.storage.gcs.batch import MAX_REQUESTS, Part, send_batch
from lakefs_gc.storage.gcs.client import GCSClient, TooLateError
from lakefs_gc.storage.gcs.content import checked_facts, facts_path, find_object, updated_at
from lakefs_gc.storage.gcs.errors import (
    IncompleteAnswerError,
    RefusedError,
    describe,
    is_answered,
    is_locked,
    is_missing_by_proxy,
    is_missing_object,
    is_retryable,
    is_slow_down,
)

log = logging.getLogger(__name__)

_BATCHES_AT_ONCE = 4
_SINGLE_REQUESTS_AT_ONCE = 16
_NULL = b"null"
"""The body with which fake-gcs-server answers a delete."""
_NO_ANSWER = "the store's answer does not mention the key"
_WRITTEN_AGAIN = "written again since the mark"


@dataclass(frozen=True)
class Target:
    """An object to delete: only this ``generation``, or only if it was not changed after ``unmodified_since``."""

    name: str
    generation: str = ""
    unmodified_since: datetime | None = None


def delete_targets(
    client: GCSClient, targets: Sequence[Target], window: DeleteWindow | None = None
) -> dict[str, Deletion]:
    """Delete objects; return one outcome for each name.

    - ``DELETED``: the store answered that it deleted the object, or that it does not exist.
    - ``NEWER``: the object was written again. ``LOCKED``: a hold or a retention policy protects it.
    - ``FAILED``: any other answer, or a target that the answer to a batch does not mention.
    - Targets that failed temporarily (429, 503, 500) are tried again after a pause.
    - If the store refuses a whole batch, each of its targets is deleted in its own request.
    - Once ``window`` is over, no try is sent; the remaining targets are failures.

    Raise ``AccessDeniedError``, ``ObjectNotFoundError`` (the bucket) or ``StoreUnavailableError`` for a reason that is
    the same for any choice of names.
    """
    distinct = list({target.name: target for target in targets}.values())
    batches = [distinct[start : start + MAX_REQUESTS] for start in range(0, len(distinct), MAX_REQUESTS)]
    outcomes: dict[str, Deletion] = {}
    # Waits for all batches, also if one raises: none runs on unrecorded.
    for _, some in map_unordered(
        lambda batch: _Deletes(client, window).run(batch), batches, _BATCHES_AT_ONCE, wait_for_all=True
    ):
        outcomes.update(some)
    return outcomes


class _Deletes:
    """The deletes of one batch. ``outcomes`` has the latest outcome of each name."""

    def __init__(self, client: GCSClient, window: DeleteWindow | None) -> None:
        self._client, self._window = client, window
        self.outcomes: dict[str, Deletion] = {}
        self._has_bucket = False

    def run(self, targets: list[Target]) -> dict[str, Deletion]:
        """Delete the targets; return the outcomes."""
        self._each(self._with_generations(targets), "DELETE")
        return self.outcomes

    def _with_generations(self, targets: list[Target]) -> list[Target]:
        """Return the targets to delete; those known by their time only get the generation that has this time."""
        by_time = {target.name: target for target in targets if target.unmodified_since and not target.generation}
        if not by_time:
            return targets
        found: list[Target] = []
        for name, part in self._each(list(by_time.values()), "GET").items():
            target = by_time[name]
            try:
                facts = checked_facts(json.loads(part.body))
            except (ValueError, IncompleteAnswerError):
                self.outcomes[name] = Deletion.of(name, "the store's answer about the object is incomplete")
                continue
            if target.unmodified_since is None or updated_at(facts) > target.unmodified_since:
                self.outcomes[name] = Deletion(name, DeletionOutcome.NEWER, _WRITTEN_AGAIN)
            else:
                found.append(replace(target, generation=facts["generation"]))
        return [target for target in targets if target.name not in by_time] + found

    def _each(self, targets: list[Target], method: str) -> dict[str, Part]:
        """Send a request for each target, with retries; return the successful answers, and record the other outcomes.

        The outcome of a successful ``DELETE`` is recorded, too.
        """
        done: dict[str, Part] = {}
        failures = 0
        while targets:
            try:
                answers = self._batch(targets, method)
            except TooLateError as late:
                self._not_tried(targets, late.error)
                break
            if answers is None:
                self._each_singly(targets, method, done)
                break
            again = [target for target in targets if self._take(target, method, answers.get(target.name), done)]
            targets, failures = again, failures + 1
            if failures >= self._client.retry.tries:
                break
            if targets:
                error = self.outcomes[targets[0].name].error
                self._client.pause(failures, f"gcs: delete of {len(targets)} objects: {error}")
        return done

    def _take(self, target: Target, method: str, part: Part | None, done: dict[str, Part]) -> bool:
        """Record the answer to one request; return whether to try again."""
        if part is None or (method == "DELETE" and part.error is None and not self._says_deleted(part)):
            self._note_unanswered()
            self.outcomes[target.name] = Deletion.of(target.name, _NO_ANSWER)
            return False
        if part.error is None:
            done[target.name] = part
            if method == "DELETE":
                self.outcomes[target.name] = Deletion.of(target.name, "")
            return False
        if not is_answered(part.error):
            self._note_unanswered()  # it may still execute the delete
        self._client.slow_downs += is_slow_down(part.error)
        self.outcomes[target.name] = self._outcome(target, part.error)
        return is_retryable(part.error)

    def _note_unanswered(self) -> None:
        if self._window:
            self._window.unanswered = True

    def _not_tried(self, targets: Sequence[Target], error: str) -> None:
        for target in targets:
            earlier = self.outcomes.get(target.name)
            why = (earlier.error if earlier else "") or error
            text = f"{NOT_TRIED}. The previous try ended with {why}" if why else NOT_TRIED
            self.outcomes[target.name] = Deletion.of(target.name, text)

    def _outcome(self, target: Target, error: RefusedError) -> Deletion:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise self._client.explain(error, action="delete", key=target.name)
        if is_missing_by_proxy(error):
            return Deletion.of(target.name, f"the answer is not the store's ({describe(error)})")
        if error.status == HTTPStatus.NOT_FOUND:
            if not (self._has_bucket or is_missing_object(error)):
                self._client.require_bucket()
                self._has_bucket = True
            return Deletion.of(target.name, "")
        if is_locked(error):
            return Deletion(target.name, DeletionOutcome.LOCKED, describe(error))
        if error.status == HTTPStatus.PRECONDITION_FAILED and target.generation:
            if find_object(self._client, target.name) is None:
                return Deletion.of(target.name, "")
            return Deletion(target.name, DeletionOutcome.NEWER, _WRITTEN_AGAIN)
        return Deletion.of(target.name, describe(error))

    # -- requests

    def _batch(self, targets: list[Target], method: str) -> dict[str, Part] | None:
        """Return the answer for each name that the store mentions; None if it refuses the whole batch."""
        if len(targets) == 1 or self._client.has_no_batches:
            return None
        requests = [(method, _path(self._client, target, method)) for target in targets]
        parts = send_batch(self._client, requests, action="delete", key=targets[0].name, window=self._window)
        if parts is None:
            # Single deletes show whether the store refuses the batch, or the credentials, or the bucket.
            log.warning("batch of deletes refused: keys=%d", len(targets))
            return None
        return {targets[number].name: part for number, part in parts.items()}

    def _each_singly(self, targets: list[Target], method: str, done: dict[str, Part]) -> None:
        """Send each request by itself. Waits for all of them, also if one raises: none runs on unrecorded."""
        answers = map_unordered(
            lambda target: self._single(target, method), targets, _SINGLE_REQUESTS_AT_ONCE, wait_for_all=True
        )
        with closing(answers):
            for target, part in answers:
                if part is not None:
                    self._take(target, method, part, done)

    def _single(self, target: Target, method: str) -> Part | None:
        """Return the answer to one request, or None if its outcome is recorded."""

        def send() -> Part:
            try:
                answer = self._client.send(method, _path(self._client, target, method))
            except RefusedError as error:
                if is_retryable(error):
                    raise
                return Part(error.status, b"", error)
            part = Part(answer.status, answer.body, None)
            if method == "DELETE" and not self._says_deleted(part):
                raise IncompleteAnswerError("the answer to a delete is not the store's")  # but a proxy's
            return part

        try:
            return self._client.call(send, action="delete", key=target.name, window=self._window)
        except TooLateError as late:
            self._not_tried([target], late.error)
        except StoreUnavailableError as error:
            self.outcomes[target.name] = Deletion.of(target.name, error.message)
        return None

    def _says_deleted(self, part: Part) -> bool:
        """Return whether a success is the store's answer to a delete: 204, and 200 with ``_NULL`` from the emulator."""
        is_emulators = self._client.is_emulator and part.body.strip() == _NULL
        return is_emulators or (part.status == HTTPStatus.NO_CONTENT and not part.body.strip())


def _path(client: GCSClient, target: Target, method: str) -> str:
    path = client.path(target.name)
    if method == "GET":
        return facts_path(client, target.name)
    return f"{path}?ifGenerationMatch={target.generation}" if target.generation else path
