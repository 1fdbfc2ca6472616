"""The findings of ``doctor``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """The result of one check, and what to do about it if it is not ok."""

    check: str
    verdict: Verdict
    detail: str
    remedy: str = ""

    def to_facts(self) -> dict[str, str]:
        """Return the finding as plain values for JSON."""
        return asdict(self)
