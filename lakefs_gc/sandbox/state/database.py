"""The database of the sandbox, in SQLite: everything that a lakeFS server stores in its key-value store."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS repositories (
    name TEXT PRIMARY KEY, storage_namespace TEXT NOT NULL, default_branch TEXT NOT NULL,
    creation_date INTEGER NOT NULL, read_only INTEGER NOT NULL, metadata TEXT NOT NULL DEFAULT '{}'
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS branches (
    repository TEXT NOT NULL, name TEXT NOT NULL, commit_id TEXT NOT NULL, staging_token TEXT NOT NULL,
    sealed_tokens TEXT NOT NULL, hidden INTEGER NOT NULL, PRIMARY KEY (repository, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tags (
    repository TEXT NOT NULL, name TEXT NOT NULL, commit_id TEXT NOT NULL, PRIMARY KEY (repository, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS commits (
    repository TEXT NOT NULL, id TEXT NOT NULL, parents TEXT NOT NULL, committer TEXT NOT NULL, message TEXT
    NOT NULL, creation_date INTEGER NOT NULL, meta_range_id TEXT NOT NULL, metadata TEXT NOT NULL,
    generation INTEGER NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (repository, id)
) WITHOUT ROWID;
-- identity and data are NULL in a tombstone
CREATE TABLE IF NOT EXISTS staged (
    token TEXT NOT NULL, key BLOB NOT NULL, identity BLOB, data BLOB, PRIMARY KEY (token, key)
) WITHOUT ROWID;
-- times in seconds since 1970
CREATE TABLE IF NOT EXISTS link_tokens (
    repository TEXT NOT NULL, address TEXT NOT NULL, expires_at REAL NOT NULL, PRIMARY KEY (repository, address)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS link_tokens_by_time ON link_tokens (expires_at);
CREATE TABLE IF NOT EXISTS copies (
    repository TEXT NOT NULL, address TEXT NOT NULL, copied_at REAL NOT NULL, PRIMARY KEY (repository, address)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS copies_by_time ON copies (copied_at);
CREATE TABLE IF NOT EXISTS tasks (
    repository TEXT NOT NULL, id TEXT NOT NULL, status TEXT NOT NULL, PRIMARY KEY (repository, id)
) WITHOUT ROWID;
"""

_BUSY_TIMEOUT_SECONDS = 60


class Database:
    """Connections to one SQLite file, one for each thread. Readers do not wait for the writer (WAL)."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        file.touch(mode=0o600)  # it contains the sandbox's credentials
        with self.write() as connection:
            for statement in SCHEMA.split(";"):
                connection.execute(statement)

    @property
    def connection(self) -> sqlite3.Connection:
        """Return the connection of this thread, for reading."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self._file, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            self._local.connection = connection
            with self._lock:
                self._connections.append(connection)
        return connection

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction. A nested transaction is part of the outer one."""
        connection = self.connection
        if connection.in_transaction:
            yield connection
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connections of all threads. No thread may use them any more."""
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
        self._local = threading.local()

    def setting(self, name: str, default: str) -> str:
        """Return a persistent value. If it is not stored yet, store and return ``default``."""
        with self.write() as connection:
            connection.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", (name, default))
            row = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return str(row["value"])
