"""The errors that lakefs-gc raises on purpose.

One class stands for one kind of failure that a caller may want to tell from the others. ``message`` says what happened
and ``remedy`` what to do next; a class has a remedy of its own for errors that are raised without one. Errors pickle,
because Spark workers raise them and the driver shows them. They never carry a secret. Only a ``transient`` error may
go away when the same call is made again.
"""

from __future__ import annotations

from typing import Any


class LakeFSGCError(Exception):
    """The base class of all errors that are raised on purpose.

    ``exit_code`` is the exit code of the command line (see "Exit codes" in the documentation). ``facts`` holds values
    for programs, such as ``status`` or ``file``.
    """

    exit_code = 1
    transient = False
    default_remedy = ""
    is_refusal = False
    """Whether a run had deleted and copied nothing when it was raised. Set by ``pipeline.refusals``."""

    def __init__(self, message: str, *, remedy: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy or self.default_remedy
        self.facts = facts

    def __str__(self) -> str:
        return f"{self.message}\n  what to do: {self.remedy}" if self.remedy else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.remedy, self.facts)


def _rebuild(cls: type[LakeFSGCError], message: str, remedy: str, facts: dict[str, Any]) -> LakeFSGCError:
    error = cls.__new__(cls)
    LakeFSGCError.__init__(error, message, remedy=remedy, **facts)
    return error


# -- settings and arguments -----------------------------------------------------------------------------------


class ConfigurationError(LakeFSGCError):
    """A setting or argument is missing, unknown, of the wrong type, or contradicts another."""

    exit_code = 2
    default_remedy = "Correct the setting or argument. Run `lakefs-gc doctor` to check the configuration"


# -- files ----------------------------------------------------------------------------------------------------


class CorruptFileError(LakeFSGCError):
    """A file that lakeFS or a collector wrote cannot be parsed, or its content contradicts its own description."""

    exit_code = 4
    default_remedy = (
        "Run again. If the error persists, restore the file from a backup of the bucket. "
        "Nothing that the file may protect was deleted"
    )

    def __init__(self, file: str, reason: str, *, remedy: str = "") -> None:
        super().__init__(f"{file}: {reason}", remedy=remedy, file=file, reason=reason)


class CorruptRangeError(CorruptFileError):
    """A range or metarange is truncated, damaged or inconsistent; ``facts`` has ``file`` and ``offset`` (bytes)."""

    def __init__(self, file: str, reason: str, *, offset: int = 0, remedy: str = "") -> None:
        super().__init__(file, f"{reason} (at byte {offset})", remedy=remedy)
        self.facts["offset"] = offset


# -- the object store -----------------------------------------------------------------------------------------


class StorageError(LakeFSGCError):
    """The object store refused a call, or the call failed."""

    exit_code = 4
    default_remedy = "Run `lakefs-gc doctor` to check the access to the store, then run again"


class ObjectNotFoundError(StorageError):
    """The object, or the bucket, does not exist."""

    default_remedy = "Check the name of the bucket and of the object, then run again"


class AccessDeniedError(StorageError):
    """The credentials do not permit the call."""

    default_remedy = "Grant these credentials the permission, then run again"


class StoreUnavailableError(StorageError):
    """The store was unreachable, or asked to slow down, until the retries were used up."""

    transient = True
    default_remedy = "Run again when the store answers"


class OldListError(StorageError):
    """A list of the store is of an earlier time: it lacks a file that was written before."""

    default_remedy = "Find out what answers for the store, such as a proxy or a cache, then run again"


class OtherRepositoryError(StorageError):
    """Another repository, which may reference objects of the collected one, could not be read."""

    default_remedy = (
        "Grant these credentials read access to the other repository. If nothing was ever imported into it, "
        "name it in safety.repositories_not_read"
    )


# -- the lakeFS server ----------------------------------------------------------------------------------------


class ServerError(LakeFSGCError):
    """The lakeFS server refused a call, or the call failed; ``facts`` has ``status`` if the server answered."""

    exit_code = 4
    default_remedy = "Run `lakefs-gc doctor` to check the access to the server, then run again"


class ServerUnavailableError(ServerError):
    """The lakeFS server was unreachable, or answered 429 or 5xx, until the retries were used up."""

    transient = True
    default_remedy = "Run again when the lakeFS server answers"


class RepositoryNotFoundError(ServerError):
    """The repository does not exist, or the server hides it from these credentials."""

    default_remedy = "Check the name of the repository, and the permissions of these lakeFS credentials"


class ReadOnlyRepositoryError(ServerError):
    """The repository is read-only, and lakeFS prepares no garbage collection for it."""

    default_remedy = "Remove the repository from the settings, or make it writable in lakeFS"


class IncompleteAnswerError(ServerError):
    """The server's answer is incomplete: a repeated continuation token, missing files, or no commits."""

    default_remedy = "Run again. If the error persists, check the log of the lakeFS server. Nothing was deleted"


# -- safety ---------------------------------------------------------------------------------------------------


class SafetyError(LakeFSGCError):
    """A safety rule forbids the next step; only what earlier rounds of a sweep recorded is deleted."""

    exit_code = 3
    default_remedy = "Correct the cause, then run again. docs/safety.md explains each rule"


class InputOrderError(SafetyError):
    """The inputs of a stage are out of order, from different runs, or incomplete (rules 1 and 3)."""

    default_remedy = "Start a new run, which materializes every stage in its order"


class ClockSkewError(SafetyError):
    """This machine's clock and the store's differ by more than safety.max_clock_skew_seconds (rule 2)."""

    default_remedy = "Synchronize the clocks, for example with NTP, then run again"


class NamespaceError(SafetyError):
    """A namespace overlaps with another repository's, or an address is outside its namespace (rules 4 and 5)."""

    default_remedy = "Do not collect this repository until each repository has a namespace of its own"


class RunInProgressError(SafetyError):
    """Another run is collecting the same repository (rule 10)."""

    default_remedy = "Wait until the other run ends, or terminate it, then run again"


class MarkError(SafetyError):
    """A mark is missing, incomplete, failed, changed after it was written, or of another repository (rule 9)."""

    default_remedy = "Mark the repository again with `lakefs-gc mark`"


class ApprovalError(SafetyError):
    """A mark has no approval, or its approval names another digest (rule 9)."""

    default_remedy = "Review the mark with `lakefs-gc show`, then approve it"


class StaleLookError(SafetyError):
    """A second look became older than sweep.max_look_age_minutes before any delete could begin (rule 6)."""

    default_remedy = "Sweep again: a new second look is taken, and deleted objects are not repeated"


class SweepIncompleteError(LakeFSGCError):
    """At least one delete of a sweep failed (rule 9); ``facts`` has ``outcomes`` and the commonest ``errors``."""

    exit_code = 5
    default_remedy = "Correct the cause of the errors, then sweep again: only what is left is deleted"


class BackupError(SafetyError):
    """A backup is missing, incomplete, changed, of another mark, or would lie where lakeFS keeps its data."""

    default_remedy = "Back the mark up again with `lakefs-gc backup`"


class BackupIncompleteError(LakeFSGCError):
    """At least one object of a mark was not copied, or its copy not verified; ``facts`` as SweepIncompleteError's."""

    exit_code = 5
    default_remedy = "Correct the cause of the errors, then back up again: verified copies are kept"


class RestoreIncompleteError(LakeFSGCError):
    """At least one object was not restored as it was; ``facts`` has the number of objects of each outcome."""

    exit_code = 5
    default_remedy = "Correct the cause of the errors, then restore again: restored objects are not copied twice"


class NotErasedError(LakeFSGCError):
    """An object that was at the given paths, or a copy of one, still exists."""

    exit_code = 6
    default_remedy = (
        "Read the report: it names what keeps each object, and until when. Sweep marks, prune backups and delete "
        "versions, then prove it again"
    )


class ErasureUnknownError(LakeFSGCError):
    """Nothing is known to remain of the objects at the given paths, but something could not be looked at."""

    exit_code = 7
    default_remedy = (
        "Make it readable, then prove it again. If this installation has no backup location and no backups exist, "
        "pass --no-backups"
    )


class InterruptedRunError(LakeFSGCError):
    """Ctrl-C or SIGTERM ended the run."""

    exit_code = 130


# -- jobs on EMR ----------------------------------------------------------------------------------------------


class RemoteJobError(LakeFSGCError):
    """A job on EMR could not be started or queried, failed, or ended without its report."""

    exit_code = 4
    default_remedy = "Read the log of the job in EMR, correct the cause, then run again"


class NotificationError(LakeFSGCError):
    """A webhook or a mail server did not accept an event, which is sent again later."""

    exit_code = 4
    default_remedy = "Check the receiver and the table [notify] of the settings"


# -- the machine ----------------------------------------------------------------------------------------------


class SparkFailedError(LakeFSGCError):
    """A Spark job failed for a reason outside lakefs-gc: a full disk, too little memory, a worker that was killed."""

    exit_code = 4
    default_remedy = "Read the log of Spark, correct the cause, then run again"


class JavaNotFoundError(LakeFSGCError):
    """No Java was found that this version of Spark supports."""

    exit_code = 2
    default_remedy = "Install Java 17, set JAVA_HOME, or install lakefs-gc[java]"
