"""The routes of commits: commit, merge, revert, compare, and the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from starlette.responses import Response

from lakefs_gc.sandbox.context import writable
from lakefs_gc.sandbox.problems import ApiError, Conflict, NotFound, already_exists
from lakefs_gc.sandbox.routes.branches import answer_differences
from lakefs_gc.sandbox.routes.call import Call, RouteTable, answer, no_content, paginated, text_map
from lakefs_gc.sandbox.state.records import Difference
from lakefs_gc.sandbox.versions import commits as operations
from lakefs_gc.sandbox.versions.commits import CommitParameters, shown_commit
from lakefs_gc.sandbox.versions.history import log, merge_base
from lakefs_gc.sandbox.versions.refs import CommitRecord, Repository


def commit(call: Call) -> Response:
    """``POST /repositories/{repository}/branches/{branch}/commits``."""
    body = call.json("CommitCreation", message=(str,), metadata=dict, date=int, allow_empty=bool, force=bool)
    parameters = CommitParameters(
        body["message"],
        text_map(body, "metadata"),
        body.get("date"),
        allow_empty=bool(body.get("allow_empty")),
        force=bool(body.get("force")),
    )
    record = operations.commit(
        call.sandbox,
        call.repository(),
        call.path["branch"],
        parameters,
        source_metarange=call.query.get("source_metarange", ""),
    )
    return answer(shown_commit(record), 201)


def create_commit_record(call: Call) -> Response:
    """``POST /repositories/{repository}/commits``: store a commit unchanged, e.g. from a backup."""
    body = call.json(
        "CommitRecordCreation",
        commit_id=(str,),
        version=(int,),
        committer=(str,),
        message=(str,),
        metarange_id=(str,),
        creation_date=(int,),
        parents=(list,),
        metadata=dict,
        generation=(int,),
        force=bool,
    )
    repository = writable(call.repository(), force=bool(body.get("force")))
    if call.sandbox.refs.has_commit(repository.name, body["commit_id"]):
        raise already_exists("commit")
    record = CommitRecord(
        id=body["commit_id"],
        parents=tuple(body["parents"]),
        committer=body["committer"],
        message=body["message"],
        creation_date=body["creation_date"],
        meta_range_id=body["metarange_id"],
        metadata=text_map(body, "metadata"),
        generation=body["generation"],
        version=body["version"],
    )
    call.sandbox.refs.add_commit(repository.name, record)
    return no_content()


def get_commit(call: Call) -> Response:
    """``GET /repositories/{repository}/commits/{commit}``; any ref will do."""
    repository = call.repository()
    try:
        record = call.sandbox.refs.resolve_commit(repository.name, call.path["commit"])
    except NotFound:
        raise NotFound("commit") from None
    return answer(shown_commit(record))


def log_commits(call: Call) -> Response:
    """``GET /repositories/{repository}/refs/{ref}/commits``."""
    repository, page = call.repository(), call.page()
    start = _commit(call, repository, call.path["ref"], "ref")
    stop_at = call.query.get("stop_at", "")
    stop = _commit(call, repository, stop_at, "stop_at").id if stop_at else ""
    commits = log(
        call.sandbox,
        repository,
        start,
        first_parent=call.flag("first_parent"),
        since=_since(call.query.get("since", "")),
    )
    if page.after:
        after = _commit(call, repository, page.after, "from ref").id
        for passed in commits:
            if passed.id == after:
                break
    prefixes = [prefix.encode() for prefix in call.queries.get("prefixes", ())]
    objects = [path.encode() for path in call.queries.get("objects", ())]
    if prefixes or objects:
        commits = (commit for commit in commits if _touches(call, repository, commit, prefixes, objects))
    records = list(islice(_until(commits, stop), page.amount + 1))
    has_more = len(records) > page.amount and not call.flag("limit")
    return answer(paginated([shown_commit(record) for record in records[: page.amount]], has_more, "id"))


def diff_refs(call: Call) -> Response:
    """``GET /repositories/{repository}/refs/{left_ref}/diff/{right_ref}``."""
    repository, page, refs = call.repository(), call.page(), call.sandbox.refs
    committed = call.sandbox.committed(repository)
    left = refs.resolve_commit(repository.name, call.path["left_ref"])
    right = refs.resolve_commit(repository.name, call.path["right_ref"])
    is_two_dot = call.query.get("type", "three_dot") == "two_dot"
    base = left if is_two_dot else merge_base(call.sandbox, repository, right, left)

    def differences(start: bytes) -> Iterator[Difference]:
        trees = (left.meta_range_id, right.meta_range_id)
        if is_two_dot:
            return committed.diff(*trees, start)
        return committed.merge_preview(*trees, base.meta_range_id, start)

    return answer_differences(call, page, differences)


def find_merge_base(call: Call) -> Response:
    """``GET /repositories/{repository}/refs/{source_ref}/merge/{destination_branch}``."""
    repository, refs = call.repository(), call.sandbox.refs
    source = refs.resolve_commit(repository.name, call.path["source_ref"])
    destination = refs.resolve_commit(repository.name, call.path["destination_branch"])
    base = merge_base(call.sandbox, repository, source, destination)
    return answer(
        {
            "base_commit_id": base.id,
            "destination_commit_id": destination.id,
            "source_commit_id": source.id,
        }
    )


def merge(call: Call) -> Response:
    """``POST /repositories/{repository}/refs/{source_ref}/merge/{destination_branch}``; the body is optional."""
    body: dict[str, Any] = {}
    if call.body:
        body = call.json(
            "Merge",
            message=str,
            metadata=dict,
            strategy=str,
            force=bool,
            allow_empty=bool,
            squash_merge=bool,
        )
    parameters = CommitParameters(
        body.get("message") or "",
        text_map(body, "metadata"),
        allow_empty=bool(body.get("allow_empty")),
        force=bool(body.get("force")),
    )
    try:
        record = operations.merge(
            call.sandbox,
            call.repository(),
            call.path["source_ref"],
            call.path["destination_branch"],
            parameters,
            strategy=body.get("strategy") or "",
            squash=bool(body.get("squash_merge")),
        )
    except Conflict:
        return answer({"reference": ""}, 409)
    return answer({"reference": record.id})


def revert(call: Call) -> Response:
    """``POST /repositories/{repository}/branches/{branch}/revert``."""
    body = call.json(
        "RevertCreation",
        ref=(str,),
        parent_number=(int,),
        commit_overrides=dict,
        allow_empty=bool,
        force=bool,
    )
    operations.revert(
        call.sandbox,
        call.repository(),
        call.path["branch"],
        body["ref"],
        body["parent_number"],
        overrides=_overrides(body),
        allow_empty=bool(body.get("allow_empty")),
        force=bool(body.get("force")),
    )
    return no_content()


def cherry_pick(call: Call) -> Response:
    """``POST /repositories/{repository}/branches/{branch}/cherry-pick``."""
    body = call.json("CherryPickCreation", ref=(str,), parent_number=int, commit_overrides=dict, force=bool)
    record = operations.cherry_pick(
        call.sandbox,
        call.repository(),
        call.path["branch"],
        body["ref"],
        body.get("parent_number"),
        overrides=_overrides(body),
        force=bool(body.get("force")),
    )
    return answer(shown_commit(record), 201)


def _overrides(body: dict[str, Any]) -> CommitParameters | None:
    overrides = body.get("commit_overrides")
    if overrides is None:
        return None
    return CommitParameters(overrides.get("message") or "", text_map(overrides, "metadata"))


def _commit(call: Call, repository: Repository, ref: str, argument: str) -> CommitRecord:
    try:
        return call.sandbox.refs.resolve_commit(repository.name, ref)
    except ApiError as error:
        raise ApiError(error.status, f"{argument}: {error.message}") from None


def _since(text: str) -> float | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        message = f'parameter "since" in query has an error: value {text}: an invalid date-time'
        raise ApiError(400, message) from None


def _until(commits: Iterator[CommitRecord], last: str) -> Iterator[CommitRecord]:
    for record in commits:
        yield record
        if record.id == last:
            return


def _touches(
    call: Call, repository: Repository, record: CommitRecord, prefixes: list[bytes], objects: list[bytes]
) -> bool:
    """Return whether a commit changed one of the paths. As in lakeFS, a merge commit never does."""
    if len(record.parents) != 1:
        return False
    parent = call.sandbox.refs.commit(repository.name, record.parents[0])
    committed = call.sandbox.committed(repository)
    for path in [*prefixes, *objects]:
        difference = next(committed.diff(parent.meta_range_id, record.meta_range_id, path), None)
        if difference is None:
            continue
        if difference.key == path or (path in prefixes and difference.key.startswith(path)):
            return True
    return False


_BRANCH = "/repositories/{repository}/branches/{branch}"
_REFS = "/repositories/{repository}/refs"

ROUTES: RouteTable = [
    ("POST", _BRANCH + "/commits", commit),
    ("POST", _BRANCH + "/revert", revert),
    ("POST", _BRANCH + "/cherry-pick", cherry_pick),
    ("POST", "/repositories/{repository}/commits", create_commit_record),
    ("GET", "/repositories/{repository}/commits/{commit}", get_commit),
    ("GET", _REFS + "/{ref}/commits", log_commits),
    ("GET", _REFS + "/{left_ref}/diff/{right_ref}", diff_refs),
    ("GET", _REFS + "/{source_ref}/merge/{destination_branch}", find_merge_base),
    ("POST", _REFS + "/{source_ref}/merge/{destination_branch}", merge),
]
