"""A client whose questions about one branch go, for a while, to a replica that does not have this branch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from lakefs_gc.errors import RepositoryNotFoundError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.lake import LakeRepository


class DenyingClient(LakeFSClient):
    """While ``is_denied``, ``branch`` does not exist for whoever asks for it. Lists of all branches have it."""

    is_denied = False
    denials = 0

    def __init__(self, repository: LakeRepository, branch: str) -> None:
        super().__init__(repository.lake.credentials)
        call = self._call

        def answer(what: str, *arguments: Any, **options: Any) -> Any:
            if self.is_denied and what == f"list branches of lake from {branch}":
                return SimpleNamespace(results=[])
            if self.is_denied and (what.endswith(f"of {branch}") or what == f"list {branch} of lake"):
                self.denials += 1
                raise RepositoryNotFoundError("branch not found")
            return call(what, *arguments, **options)

        self._call = answer

    @contextmanager
    def denying(self) -> Iterator[None]:
        """Deny the branch in this block."""
        self.is_denied = True
        try:
            yield
        finally:
            self.is_denied = False
