"""Every error that lakefs-gc raises on purpose.

Each class is one kind of trouble that a caller may want to tell apart.  Its message says what happened, and
``remedy`` what to do next.  Errors pickle (Spark workers raise them, the driver shows them) and never carry a
secret.  ``transient`` errors may go away when the same call is made again; all others will not.
"""

from __future__ import annotations

from typing import Any


class LakeFSGCError(Exception):
    """Base of all errors raised on purpose.

    ``exit_code`` is what the command line ends with (see README, exit codes).
    """

    exit_code = 1
    transient = False

    def __init__(self, message: str, *, remedy: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.facts = facts

    def __str__(self) -> str:
        return f"{self.message}\n  what to do: {self.remedy}" if self.remedy else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.remedy, self.facts)


def _rebuild(cls: type[LakeFSGCError], message: str, remedy: str, facts: dict[str, Any]) -> LakeFSGCError:
    error = cls.__new__(cls)
    LakeFSGCError.__init__(error, message, remedy=remedy, **facts)
    return error


# -- what the user gave ---------------------------------------------------------------------------------------


class ConfigurationError(LakeFSGCError):
    """A setting is missing, unknown, of the wrong type, or contradicts another."""

    exit_code = 2


# -- files ----------------------------------------------------------------------------------------------------


class CorruptFileError(LakeFSGCError):
    """A file that lakeFS or a collector wrote does not parse, or does not hold what it says it holds."""

    exit_code = 4

    def __init__(self, file: str, reason: str, *, remedy: str = "") -> None:
        super().__init__(
            f"{file}: {reason}",
            remedy=remedy
            or "run again, and restore the file if it is damaged; nothing that it may protect was deleted",
            file=file,
            reason=reason,
        )


class CorruptRangeError(CorruptFileError):
    """A range or metarange is truncated, damaged or inconsistent; ``facts`` has ``file`` and ``offset`` (bytes)."""

    def __init__(self, file: str, reason: str, *, offset: int = 0, remedy: str = "") -> None:
        super().__init__(file, f"{reason} (at byte {offset})", remedy=remedy)
        self.facts["offset"] = offset


# -- the object store -----------------------------------------------------------------------------------------


class StorageError(LakeFSGCError):
    """The object store refused or failed a call."""

    exit_code = 4


class ObjectNotFoundError(StorageError):
    """The object, or the bucket, does not exist."""


class AccessDeniedError(StorageError):
    """The credentials do not allow the call."""


class StoreUnavailableError(StorageError):
    """The store could not be reached, or asked to slow down, for longer than the retries last."""

    transient = True


class OtherRepositoryError(StorageError):
    """Another repository, which may refer to objects of the one at hand, could not be read."""


# -- the lakeFS server ----------------------------------------------------------------------------------------


class ServerError(LakeFSGCError):
    """The lakeFS server refused or failed a call; ``facts`` has ``status`` where there was an answer."""

    exit_code = 4


class ServerUnavailableError(ServerError):
    """The lakeFS server could not be reached, or answered 429 or 5xx, for longer than the retries last."""

    transient = True


class RepositoryNotFoundError(ServerError):
    """The server has no such repository, or hides it from these credentials."""


class ReadOnlyRepositoryError(ServerError):
    """The repository is read-only: lakeFS prepares no garbage collection for it."""


class IncompleteAnswerError(ServerError):
    """The server's answer is not whole: a continuation that does not move, files that are missing, no commits."""


# -- safety ---------------------------------------------------------------------------------------------------


class SafetyError(LakeFSGCError):
    """A safety rule forbids to go on.

    Nothing was deleted; of a sweep, nothing but what its earlier rounds recorded.
    """

    exit_code = 3


class InputOrderError(SafetyError):
    """Inputs of a stage are out of order, of different runs, or incomplete (rules 1 and 3)."""


class ClockSkewError(SafetyError):
    """This machine's clock and the store's differ by more than the allowed skew (rule 2)."""


class NamespaceError(SafetyError):
    """A namespace overlaps with another repository's, or an address leaves its namespace (rules 4 and 5)."""


class RunInProgressError(SafetyError):
    """Another run collects the same repository (rule 10)."""


class MarkError(SafetyError):
    """A mark is missing, unfinished, failed, changed since it was made, or of another repository (rule 9)."""


class ApprovalError(SafetyError):
    """The sweep of a mark was not approved, or the approval names another digest (rule 9)."""


class StaleLookError(SafetyError):
    """A sweep's look at what is referenced grew too old before one delete could begin on its word (rule 6)."""


class SweepIncompleteError(LakeFSGCError):
    """At least one delete of a sweep failed (rule 9).

    ``facts`` has ``outcomes`` (objects and bytes of each) and the most frequent ``errors``, where they are known.
    """

    exit_code = 5


class BackupError(SafetyError):
    """A backup is missing, incomplete, changed, of another mark, or was to lie where lakeFS keeps its data."""


class BackupIncompleteError(LakeFSGCError):
    """At least one object of a mark could not be copied, or its copy not be proved.

    ``facts`` as those of ``SweepIncompleteError``.
    """

    exit_code = 5


class RestoreIncompleteError(LakeFSGCError):
    """At least one object did not come back as it was; ``facts`` has the count of each outcome."""

    exit_code = 5


class InterruptedRunError(LakeFSGCError):
    """Ctrl-C or SIGTERM ended a run."""

    exit_code = 130


# -- jobs elsewhere -------------------------------------------------------------------------------------------


class RemoteJobError(LakeFSGCError):
    """A job on EMR could not be started or asked for, failed, or ended without what it was to report."""

    exit_code = 4


# -- the machine ----------------------------------------------------------------------------------------------


class SparkFailedError(LakeFSGCError):
    """A Spark job failed for a reason of its own: a full disk, too little memory, a worker that was killed."""

    exit_code = 4


class JavaNotFoundError(LakeFSGCError):
    """No Java runtime that Spark can use was found."""

    exit_code = 2
