"""The facts of many objects, in batches of requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from http import HTTPStatus

from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.gcs.batch import MAX_REQUESTS, Part, send_batch
from lakefs_gc.storage.gcs.client import GCSClient
from lakefs_gc.storage.gcs.content import Resource, checked_facts, facts_path, find_object
from lakefs_gc.storage.gcs.errors import (
    GCS_FAILURES,
    GCSFailure,
    IncompleteAnswerError,
    asks_to_slow_down,
    describe,
    http_status,
    is_missing_by_proxy,
    is_missing_object,
    is_retryable,
    is_slow_down,
)

_BATCHES_AT_ONCE = 4


def find_objects(client: GCSClient, names: Sequence[str], concurrency: int) -> Iterator[tuple[str, Resource | None]]:
    """Yield the name and the facts of each object; None if it does not exist.

    Up to ``concurrency`` objects have a request of their own, because these take no longer than a batch; so has each
    object if the store refuses batches. Raise an error for any answer that is neither the facts nor a 404, or if an
    object has no answer, after the retries. Raise ``ObjectNotFoundError`` if the bucket does not exist.
    """
    distinct = list(dict.fromkeys(names))
    if len(distinct) <= concurrency or client.has_no_batches:
        yield from map_unordered(lambda name: find_object(client, name), distinct, concurrency)
        return
    batches = [distinct[start : start + MAX_REQUESTS] for start in range(0, len(distinct), MAX_REQUESTS)]
    refused: list[str] = []
    with closing(map_unordered(lambda batch: _Batch(client).find(batch), batches, _BATCHES_AT_ONCE)) as answers:
        for batch, found in answers:
            if found is None:
                refused += batch
            else:
                yield from found.items()
    yield from map_unordered(lambda name: find_object(client, name), refused, concurrency)


class _Batch:
    """The lookups of one batch."""

    def __init__(self, client: GCSClient) -> None:
        self._client = client
        self._has_bucket = False

    def find(self, names: list[str]) -> dict[str, Resource | None] | None:
        """Return the facts of the objects; None if the store refuses the batch."""
        found: dict[str, Resource | None] = {}
        failures = 0
        while True:
            requests = [("GET", facts_path(self._client, name)) for name in names]
            parts = send_batch(self._client, requests, action="read", key=names[0])
            if parts is None:
                return None
            answers = {name: _facts(parts.get(number)) for number, name in enumerate(names)}
            failures += 1
            failed: dict[str, GCSFailure] = {}
            for name, answer in answers.items():
                if not isinstance(answer, GCS_FAILURES):
                    found[name] = answer
                elif self._is_missing(name, answer, failures):
                    found[name] = None
                else:
                    failed[name] = answer
            names = list(failed)
            if not names:
                return found
            self._client.slow_downs += sum(map(is_slow_down, failed.values()))
            self._client.pause(failures, f"gcs: read of {len(names)} objects: {describe(failed[names[0]])}")

    def _is_missing(self, name: str, error: GCSFailure, failures: int) -> bool:
        """Return whether an error says that the object does not exist. Otherwise its request is to be sent again.

        Raise the error of a call if it must not be sent again.
        """
        if http_status(error) == HTTPStatus.NOT_FOUND and not is_missing_by_proxy(error):
            if not (self._has_bucket or is_missing_object(error)):
                self._client.require_bucket()
                self._has_bucket = True
            return True
        most = self._client.retry.tries_when_slow if asks_to_slow_down(error) else self._client.retry.tries
        if not is_retryable(error) or failures >= most:
            raise self._client.explain(error, action="read", key=name) from error
        return False


def _facts(part: Part | None) -> Resource | GCSFailure:
    """Return the facts in the answer to one request of a batch, or the error."""
    if part is None:
        return IncompleteAnswerError("the store's answer does not mention the object")
    if part.error is not None:
        return part.error
    try:
        return checked_facts(json.loads(part.body))
    except ValueError:
        return IncompleteAnswerError("the answer about the object is not JSON")
    except IncompleteAnswerError as error:
        return error
