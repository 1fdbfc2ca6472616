"""Staging areas: the changes of a branch since its last commit, in layers (see ``refs.Branch``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakefs_gc.sandbox.state.database import Database
from lakefs_gc.sandbox.state.records import Change, Record, overlay

_PAGE_ROWS = 5000


class Staging:
    """The layers of all branches of all repositories."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, token: str, changes: Sequence[Change]) -> None:
        """Write changes into one layer."""
        rows = [
            (
                token,
                change.key,
                change.record and change.record.identity,
                change.record and change.record.data,
            )
            for change in changes
        ]
        with self._database.write() as connection:
            connection.executemany("INSERT OR REPLACE INTO staged VALUES (?, ?, ?, ?)", rows)

    def get(self, tokens: Sequence[str], key: bytes) -> Change | None:
        """Return the change of a path in the newest layer that has one."""
        query = "SELECT identity, data FROM staged WHERE token = ? AND key = ?"
        for token in tokens:
            row = self._database.connection.execute(query, (token, key)).fetchone()
            if row is not None:
                return _change(key, row["identity"], row["data"])
        return None

    def changes(self, tokens: Sequence[str], start: bytes = b"") -> Iterator[Change]:
        """Yield the changes of all layers together, from the path ``start`` on."""
        return overlay([self._layer(token, start) for token in tokens])

    def _layer(self, token: str, start: bytes) -> Iterator[Change]:
        # In pages, because an open cursor would prevent the truncation of the write-ahead log.
        query = "SELECT key, identity, data FROM staged WHERE token = ? AND key {} ? ORDER BY key LIMIT ?"
        comparison = ">="
        while True:
            values = (token, start, _PAGE_ROWS)
            rows = self._database.connection.execute(query.format(comparison), values).fetchall()
            for row in rows:
                yield _change(row["key"], row["identity"], row["data"])
            if len(rows) < _PAGE_ROWS:
                return
            start, comparison = rows[-1]["key"], ">"


def _change(key: bytes, identity: bytes | None, data: bytes | None) -> Change:
    return Change(key, None if identity is None or data is None else Record(key, identity, data))
