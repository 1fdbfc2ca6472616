"""What an examination found: the doctor's answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One check: what was found, and what to do about it when it is not ok."""

    check: str
    verdict: Verdict
    detail: str
    remedy: str = ""

    def to_facts(self) -> dict[str, str]:
        """As JSON."""
        return asdict(self)
