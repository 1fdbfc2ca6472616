"""A change of the code that a test must detect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import lakefs_gc

PACKAGE = Path(lakefs_gc.__file__).parent


@dataclass(frozen=True)
class Mutant:
    """A change of one place: ``code``, which occurs once in ``file`` (below ``lakefs_gc/``), becomes ``instead``.

    ``removed_rule`` describes the guarantee that this removes. ``test`` is a file below ``lakefs_gc_tests/``. ``only``
    selects tests of it, as pytest's ``-k``.
    """

    rule: int
    removed_rule: str
    file: str
    code: str
    instead: str
    test: str
    only: str = ""

    def applied(self, source: str) -> str:
        """Return the changed source. Raise ``ValueError`` unless the code occurs exactly once."""
        if source.count(self.code) != 1:
            raise ValueError(f"{self.file} contains {self.code!r} {source.count(self.code)} times, not once")
        return source.replace(self.code, self.instead)


def never(rule: int, removed_rule: str, file: str, condition: str, test: str, only: str = "") -> Mutant:
    """Return a mutant that disables a check. ``condition``: the condition of its ``if``."""
    return Mutant(rule, removed_rule, file, f"if {condition}:", "if False:", test, only)
