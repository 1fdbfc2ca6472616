"""The operations that create a commit or move a branch: commit, merge, revert, cherry-pick, import.

Each operation holds the repository's lock, seals the branch's staging token, writes ranges, and then moves the branch
in one transaction. Uploads need no lock: meanwhile they continue into the new token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from lakefs_gc.sandbox.auth import USER
from lakefs_gc.sandbox.context import Sandbox, writable
from lakefs_gc.sandbox.problems import ApiError, NoChanges, missing
from lakefs_gc.sandbox.state.records import Change, overlay
from lakefs_gc.sandbox.versions.branches import commit_for, is_dirty, seal, seal_clean
from lakefs_gc.sandbox.versions.history import merge_base
from lakefs_gc.sandbox.versions.refs import Branch, CommitRecord, Repository, new_commit

FIRST_MESSAGE = "Repository created"
STRATEGY_KEY = ".lakefs.merge.strategy"
_STRATEGIES = {"": "default", "source-wins": "source-wins", "dest-wins": "dest-wins"}


@dataclass(frozen=True)
class CommitParameters:
    """A client's description of a commit. ``date`` is in seconds since 1970, or None for now."""

    message: str
    metadata: dict[str, str] = field(default_factory=dict)
    date: int | None = None
    allow_empty: bool = False
    force: bool = False


def first_commit(sandbox: Sandbox) -> CommitRecord:
    """Return the empty commit that a repository begins with."""
    return new_commit(
        (),
        committer="",
        message=FIRST_MESSAGE,
        creation_date=sandbox.now_seconds(),
        meta_range_id="",
        metadata={},
        generation=1,
    )


def shown_commit(commit: CommitRecord) -> dict[str, Any]:
    """Return a commit as the API shows it."""
    return {
        "committer": commit.committer,
        "creation_date": commit.creation_date,
        "generation": commit.generation,
        "id": commit.id,
        "message": commit.message,
        "meta_range_id": commit.meta_range_id,
        "metadata": commit.metadata,
        "parents": list(commit.parents),
        "version": commit.version,
    }


def commit(
    sandbox: Sandbox,
    repository: Repository,
    branch_name: str,
    parameters: CommitParameters,
    *,
    source_metarange: str = "",
) -> CommitRecord:
    """Commit the staged changes, or with ``source_metarange`` an existing tree of the store."""
    if not parameters.message:
        raise missing("message")
    writable(repository, force=parameters.force)
    with sandbox.lock(repository):
        if source_metarange:
            branch = sandbox.refs.branch(repository.name, branch_name)
            if is_dirty(sandbox, repository, branch, branch.tokens):
                raise ApiError(400, "cannot use source MetaRange on a branch with uncommitted changes")
        branch = seal(sandbox, repository, branch_name)
        head = sandbox.refs.commit(repository.name, branch.commit_id)
        tree = source_metarange
        if not tree:
            changes = sandbox.staging.changes(branch.sealed_tokens)
            try:
                tree = sandbox.committed(repository).apply(
                    head.meta_range_id, changes, allow_empty=parameters.allow_empty
                )
            except NoChanges:
                raise NoChanges("commit") from None
        record = _child(sandbox, head, tree, parameters)
        _advance(sandbox, repository, branch, record)
    return record


def merge(
    sandbox: Sandbox,
    repository: Repository,
    source: str,
    destination: str,
    parameters: CommitParameters,
    *,
    strategy: str = "",
    squash: bool = False,
) -> CommitRecord:
    """Merge the ref ``source`` into a branch."""
    writable(repository, force=parameters.force)
    if strategy not in _STRATEGIES:
        raise ApiError(400, "argument strategy: invalid value: validation error")
    with sandbox.lock(repository):
        branch = seal_clean(sandbox, repository, destination)
        theirs = commit_for(sandbox, repository, source, f"update branch {destination}: get commit by ref {source}")
        ours = sandbox.refs.commit(repository.name, branch.commit_id)
        base = merge_base(sandbox, repository, theirs, ours)
        try:
            tree = sandbox.committed(repository).merge(
                ours.meta_range_id,
                theirs.meta_range_id,
                base.meta_range_id,
                strategy=strategy,
                allow_empty=parameters.allow_empty or parameters.force,
            )
        except NoChanges:
            raise NoChanges(f"update branch {destination}") from None
        message = parameters.message or f"Merge '{source}' into '{destination}'"
        parameters = replace(
            parameters,
            message=message,
            metadata={**parameters.metadata, STRATEGY_KEY: _STRATEGIES[strategy]},
        )
        record = _child(sandbox, ours, tree, parameters, merged=None if squash else theirs)
        _advance(sandbox, repository, branch, record)
    return record


def revert(
    sandbox: Sandbox,
    repository: Repository,
    branch_name: str,
    ref: str,
    parent_number: int,
    *,
    overrides: CommitParameters | None = None,
    allow_empty: bool = False,
    force: bool = False,
) -> CommitRecord:
    """Revert a commit: merge its parent into the branch, with the commit itself as the base."""
    writable(repository, force=force)
    undone = commit_for(sandbox, repository, ref, f"get commit from ref {ref}")
    if len(undone.parents) > 1 and parent_number <= 0:
        raise ApiError(409, "must specify 1-based parent number for reverting merge commit")
    if parent_number > len(undone.parents):
        message = f"given commit does not have the given parent number: parent {parent_number}"
        raise ApiError(400, message)
    parameters = _overridden(CommitParameters(f"Revert {ref}", force=force), overrides)
    parent = undone.parents[max(parent_number - 1, 0)] if undone.parents else ""

    def tree_of(head: CommitRecord) -> str:
        target = sandbox.refs.commit(repository.name, parent).meta_range_id if parent else ""
        tree = sandbox.committed(repository).merge(
            head.meta_range_id, target, undone.meta_range_id, allow_empty=allow_empty
        )
        if tree == head.meta_range_id and not allow_empty:
            raise NoChanges
        return tree

    return _apply_patch(sandbox, repository, branch_name, parameters, tree_of)


def cherry_pick(
    sandbox: Sandbox,
    repository: Repository,
    branch_name: str,
    ref: str,
    parent_number: int | None,
    *,
    overrides: CommitParameters | None = None,
    force: bool = False,
) -> CommitRecord:
    """Apply the changes of a commit to a branch: merge the commit, with its parent as the base."""
    writable(repository, force=force)
    picked = commit_for(sandbox, repository, ref, f"get commit from ref {ref}")
    if parent_number is None and len(picked.parents) > 1:
        raise ApiError(400, "must specify 1-based parent number for cherry-picking merge commit")
    number = parent_number or 1
    if number > len(picked.parents):
        raise ApiError(400, f"parent {number}: given commit does not have the given parent number")
    parent = sandbox.refs.commit(repository.name, picked.parents[number - 1])
    own = CommitParameters(picked.message, dict(picked.metadata), force=force)
    parameters = _overridden(own, overrides)
    origin = {"cherry-pick-origin": picked.id, "cherry-pick-committer": picked.committer}
    parameters = replace(parameters, metadata={**parameters.metadata, **origin})

    def tree_of(head: CommitRecord) -> str:
        return sandbox.committed(repository).merge(head.meta_range_id, picked.meta_range_id, parent.meta_range_id)

    return _apply_patch(sandbox, repository, branch_name, parameters, tree_of)


def replace_prefixes(
    sandbox: Sandbox,
    repository: Repository,
    branch_name: str,
    parameters: CommitParameters,
    prefixes: list[bytes],
    changes: Callable[[], Iterator[Change]],
) -> CommitRecord:
    """Commit an import: the changes replace everything below the prefixes."""
    writable(repository, force=parameters.force)
    parameters = replace(parameters, metadata={**parameters.metadata, STRATEGY_KEY: "source-wins"})

    def tree_of(head: CommitRecord) -> str:
        committed = sandbox.committed(repository)

        def removed(prefix: bytes) -> Iterator[Change]:
            for record in committed.records(head.meta_range_id, prefix):
                if not record.key.startswith(prefix):
                    return
                yield Change(record.key, None)

        layers = [changes(), *(removed(prefix) for prefix in prefixes)]
        return committed.apply(head.meta_range_id, overlay(layers), allow_empty=True)

    return _apply_patch(sandbox, repository, branch_name, parameters, tree_of)


def _apply_patch(
    sandbox: Sandbox,
    repository: Repository,
    branch_name: str,
    parameters: CommitParameters,
    tree_of: Callable[[CommitRecord], str],
) -> CommitRecord:
    """Create a commit on a clean branch, of the tree that ``tree_of`` computes from its HEAD."""
    with sandbox.lock(repository):
        branch = seal_clean(sandbox, repository, branch_name)
        head = sandbox.refs.commit(repository.name, branch.commit_id)
        try:
            tree = tree_of(head)
        except NoChanges:
            raise NoChanges("update branch") from None
        record = _child(sandbox, head, tree, parameters)
        _advance(sandbox, repository, branch, record)
    return record


def _child(
    sandbox: Sandbox,
    head: CommitRecord,
    tree: str,
    parameters: CommitParameters,
    *,
    merged: CommitRecord | None = None,
) -> CommitRecord:
    parents = [head] if merged is None else [head, merged]
    return new_commit(
        tuple(parent.id for parent in parents),
        committer=USER,
        message=parameters.message,
        creation_date=sandbox.now_seconds() if parameters.date is None else parameters.date,
        meta_range_id=tree,
        metadata=parameters.metadata,
        generation=max(parent.generation for parent in parents) + 1,
    )


def _advance(sandbox: Sandbox, repository: Repository, sealed: Branch, record: CommitRecord) -> None:
    """Store a commit, move the branch to it, and drop the tokens that were sealed before."""

    def moved(branch: Branch) -> Branch:
        left = tuple(token for token in branch.sealed_tokens if token not in sealed.sealed_tokens)
        return replace(branch, commit_id=record.id, sealed_tokens=left)

    with sandbox.database.write():
        sandbox.refs.add_commit(repository.name, record)
        sandbox.refs.update_branch(repository.name, sealed.name, moved)


def _overridden(own: CommitParameters, overrides: CommitParameters | None) -> CommitParameters:
    if overrides is None:
        return own
    return replace(own, message=overrides.message or own.message, metadata=overrides.metadata or own.metadata)
