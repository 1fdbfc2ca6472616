"""A change of the code that some test must notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import lakefs_gc

PACKAGE = Path(lakefs_gc.__file__).parent


@dataclass(frozen=True)
class Mutant:
    """One change of one place: in ``file`` (below ``lakefs_gc/``), where it stands once, ``code`` becomes ``instead``.

    ``test`` is a file below ``lakefs_gc_tests/``; ``only`` selects from it, as pytest's ``-k`` does.
    """

    rule: int
    taken_out: str
    file: str
    code: str
    instead: str
    test: str
    only: str = ""

    def applied(self, source: str) -> str:
        """The source, changed.  Raises ``ValueError`` where the code does not stand there once."""
        if source.count(self.code) != 1:
            raise ValueError(f"{self.file} has {source.count(self.code)} times {self.code!r}")
        return source.replace(self.code, self.instead)


def never(rule: int, taken_out: str, file: str, condition: str, test: str, only: str = "") -> Mutant:
    """A check that never strikes: ``condition`` is what stands behind its ``if``."""
    return Mutant(rule, taken_out, file, f"if {condition}:", "if False:", test, only)
