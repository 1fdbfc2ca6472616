"""Proofs of erasure in tests, as the command makes them."""

from __future__ import annotations

from collections.abc import Callable

from lakefs_gc.config import Settings
from lakefs_gc.engine.explain.erasure import ErasureProof, Verdict, prove_erased
from lakefs_gc.engine.explain.sources import open_sources
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.lake import LakeRepository

Prove = Callable[..., ErasureProof]


def prover(repository: LakeRepository, settings: Settings, server: LakeFSClient | None = None) -> Prove:
    """Return a function that proves the erasure of paths of a repository. Its options change the settings."""
    client = server or LakeFSClient(repository.lake.credentials)

    def prove(*paths: str, no_backups: bool = False, **changes: object) -> ErasureProof:
        changed = settings.model_copy(update=changes)
        sources = open_sources("lake", client, changed, Workspace(changed.resolved_work_url()))
        return prove_erased(sources, paths, no_backups=no_backups)

    return prove


def verdicts(proof: ErasureProof) -> dict[str, Verdict]:
    """Return the verdict about each object of a proof, by address."""
    return {each.explanation.address: each.verdict for each in proof.objects}
