"""Branches and their staging areas: uncommitted changes, sealing, and the kinds of reset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lakefs_gc.sandbox.context import Sandbox, writable
from lakefs_gc.sandbox.problems import ApiError, NotFound, dirty
from lakefs_gc.sandbox.state.records import Change, Difference, DifferenceType, Record
from lakefs_gc.sandbox.versions.refs import Branch, CommitRecord, Repository, new_staging_token


def new_branch(name: str, commit_id: str, *, hidden: bool = False) -> Branch:
    """Return a branch with an empty staging area."""
    return Branch(name, commit_id, new_staging_token(name), hidden=hidden)


def uncommitted(sandbox: Sandbox, repository: Repository, branch: Branch, start: bytes = b"") -> Iterator[Difference]:
    """Yield what the staging area changes of the branch's HEAD, from the path ``start`` on.

    As in lakeFS, a staged record with the identity of the committed record is not a change, whatever its address.
    """
    return _differences(sandbox, repository, branch, branch.tokens, start)


def reset(sandbox: Sandbox, repository: Repository, branch_name: str, *, force: bool = False) -> None:
    """Drop everything that is staged on a branch."""
    writable(repository, force=force)

    def emptied(branch: Branch) -> Branch:
        return replace(branch.sealed(), sealed_tokens=())

    sandbox.refs.update_branch(repository.name, branch_name, emptied)


def reset_paths(
    sandbox: Sandbox,
    repository: Repository,
    branch_name: str,
    path: bytes,
    *,
    is_prefix: bool,
    force: bool = False,
) -> None:
    """Drop the staged changes at a path, or below a prefix."""
    writable(repository, force=force)
    with sandbox.lock(repository):
        branch = sandbox.refs.branch(repository.name, branch_name)
        resets = []
        for difference in uncommitted(sandbox, repository, branch, path):
            if not (difference.key.startswith(path) if is_prefix else difference.key == path):
                break
            resets.append(Change(difference.key, difference.left))
        sandbox.staging.put(branch.staging_token, resets)


def hard_reset(sandbox: Sandbox, repository: Repository, branch_name: str, ref: str, *, force: bool = False) -> None:
    """Move a branch to another commit. The commits that it leaves become dangling."""
    writable(repository, force=force)
    with sandbox.lock(repository):
        branch = sandbox.refs.branch(repository.name, branch_name)
        if is_dirty(sandbox, repository, branch, branch.sealed_tokens):
            raise dirty(branch_name)
        target = commit_for(sandbox, repository, ref, f"hard-reset {branch_name} to {ref}")
        sandbox.refs.update_branch(repository.name, branch_name, lambda branch: replace(branch, commit_id=target.id))


def seal(sandbox: Sandbox, repository: Repository, branch_name: str) -> Branch:
    """Return the branch with a new layer on top of its staging area. The layers below are sealed."""
    return sandbox.refs.update_branch(repository.name, branch_name, Branch.sealed)


def seal_clean(sandbox: Sandbox, repository: Repository, branch_name: str) -> Branch:
    """Return the branch with its staging area sealed, which must contain no change."""

    def checked(branch: Branch) -> Branch:
        if is_dirty(sandbox, repository, branch, branch.tokens):
            raise dirty()
        return branch.sealed()

    return sandbox.refs.update_branch(repository.name, branch_name, checked)


def is_dirty(sandbox: Sandbox, repository: Repository, branch: Branch, tokens: tuple[str, ...]) -> bool:
    """Return whether these layers of the branch have any change."""
    return next(_differences(sandbox, repository, branch, tokens, b""), None) is not None


def _differences(
    sandbox: Sandbox, repository: Repository, branch: Branch, tokens: tuple[str, ...], start: bytes
) -> Iterator[Difference]:
    tree = sandbox.refs.commit(repository.name, branch.commit_id).meta_range_id
    committed: Callable[[bytes], Record | None] | None = None
    for change in sandbox.staging.changes(tokens, start):
        if committed is None:  # at the first change: a branch without any needs no tree
            committed = sandbox.committed(repository).getter(tree)
        left, right = committed(change.key), change.record
        if right is None:
            if left is not None:
                yield Difference(DifferenceType.REMOVED, change.key, left, None)
        elif left is None:
            yield Difference(DifferenceType.ADDED, change.key, None, right)
        elif left.identity != right.identity:
            yield Difference(DifferenceType.CHANGED, change.key, left, right)


def commit_for(sandbox: Sandbox, repository: Repository, ref: str, context: str) -> CommitRecord:
    """Return the commit of a ref; ``context`` is the prefix of the error message."""
    try:
        return sandbox.refs.resolve_commit(repository.name, ref)
    except NotFound as error:
        raise ApiError(404, f"{context}: {error.message}") from None
