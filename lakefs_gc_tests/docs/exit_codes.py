"""Generate the table of exit codes from the errors that lakefs-gc raises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from lakefs_gc import errors
from lakefs_gc_tests.docs.markdown import sentence, table


def by_exit_code() -> dict[int, list[type[errors.LakeFSGCError]]]:
    """Return the errors of each exit code, in the order in which they are defined."""
    codes = defaultdict(list)
    for error in _all_errors():
        codes[error.exit_code].append(error)
    return dict(sorted(codes.items()))


def exit_codes() -> str:
    """Return which errors end a command with which exit code, each with what it means."""
    rows = [
        (f"{code}", f"`{error.__name__}`", sentence((error.__doc__ or "").partition("\n\n")[0]))
        for code, found in by_exit_code().items()
        for error in found
    ]
    return table(("exit code", "error", "meaning"), rows)


def _all_errors() -> Iterator[type[errors.LakeFSGCError]]:
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, errors.LakeFSGCError) and value is not errors.LakeFSGCError:
            yield value
