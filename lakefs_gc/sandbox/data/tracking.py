"""Addresses that are remembered for a limited time: issued link tokens, and copies that share an address."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from lakefs_gc.sandbox.clock import Clock
from lakefs_gc.sandbox.state.database import Database

_PAGE_ROWS = 5000


class LinkTokens:
    """Unused upload tokens. A token is removed when it is used or expires."""

    def __init__(self, database: Database, clock: Clock, *, lifetime_seconds: float) -> None:
        self._database = database
        self._clock = clock
        self._lifetime_seconds = lifetime_seconds

    def add(self, repository: str, signed_address: str) -> None:
        """Store a token that is being issued."""
        now = self._clock().timestamp()
        with self._database.write() as connection:
            self._forget_expired(connection, now)
            values = (repository, signed_address, now + self._lifetime_seconds)
            connection.execute("INSERT INTO link_tokens VALUES (?, ?, ?)", values)

    def has(self, repository: str, signed_address: str) -> bool:
        """Return whether a token was issued and not used yet."""
        query = "SELECT 1 FROM link_tokens WHERE repository = ? AND address = ?"
        return self._database.connection.execute(query, (repository, signed_address)).fetchone() is not None

    def use(self, repository: str, signed_address: str) -> bool:
        """Remove a token. Return whether it existed, which is True for only one of two requests with the same token."""
        with self._database.write() as connection:
            self._forget_expired(connection, self._clock().timestamp())
            query = "DELETE FROM link_tokens WHERE repository = ? AND address = ?"
            return connection.execute(query, (repository, signed_address)).rowcount == 1

    def _forget_expired(self, connection: sqlite3.Connection, now: float) -> None:
        connection.execute("DELETE FROM link_tokens WHERE expires_at < ?", (now,))


class TrackedCopies:
    """Addresses that a copy shares with its source, each for ``lifetime_seconds`` after the last such copy.

    A rename (copy, then delete) may move an address from a part of a staging area that a preparation has not yet read
    to a part that it has already read. The preparation does not miss it, because it reads these addresses last.
    """

    def __init__(self, database: Database, clock: Clock, *, lifetime_seconds: float) -> None:
        self._database = database
        self._clock = clock
        self.lifetime_seconds = lifetime_seconds

    def add(self, repository: str, address: str) -> None:
        """Record a copy that shares an address (relative to the namespace), in the transaction that stages it."""
        now = self._clock().timestamp()
        with self._database.write() as connection:
            connection.execute("INSERT OR REPLACE INTO copies VALUES (?, ?, ?)", (repository, address, now))
            connection.execute("DELETE FROM copies WHERE copied_at < ?", (now - self.lifetime_seconds,))

    def addresses(self, repository: str, start: str = "") -> Iterator[tuple[str, int]]:
        """Yield each address with the time of the copy in seconds since 1970, ascending from ``start`` on."""
        query = "SELECT address, copied_at FROM copies WHERE repository = ? AND address {} ? ORDER BY address LIMIT ?"
        comparison = ">="
        while True:
            values = (repository, start, _PAGE_ROWS)
            rows = self._database.connection.execute(query.format(comparison), values).fetchall()
            for row in rows:
                yield row["address"], int(row["copied_at"])
            if len(rows) < _PAGE_ROWS:
                return
            start, comparison = rows[-1]["address"], ">"

    def forget_old(self) -> None:
        """Remove the copies that no running preparation can need any more."""
        oldest = self._clock().timestamp() - self.lifetime_seconds
        with self._database.write() as connection:
            connection.execute("DELETE FROM copies WHERE copied_at < ?", (oldest,))
