"""The routes of branches, tags, and uncommitted changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from starlette.responses import Response

from lakefs_gc.sandbox.context import writable
from lakefs_gc.sandbox.problems import ApiError, NotFound, already_exists, invalid
from lakefs_gc.sandbox.routes.call import (
    Call,
    Page,
    RouteTable,
    answer,
    no_content,
    page_of,
    paginated,
    required_text,
)
from lakefs_gc.sandbox.state.records import Difference, list_level
from lakefs_gc.sandbox.versions import branches as operations
from lakefs_gc.sandbox.versions.branches import new_branch, uncommitted
from lakefs_gc.sandbox.versions.refs import Refs, Repository, Resolved, is_branch_name, is_tag_name

_BRANCH_RULE = ": branch id must consist of letters, digits, underscores and dashes, and cannot start with a dash"


def answer_differences(call: Call, page: Page, differences: Callable[[bytes], Iterator[Difference]]) -> Response:
    """Return a page of a diff. ``differences`` yields the differences from a path on."""
    level, has_more = list_level(
        differences,
        lambda difference: difference.key,
        prefix=page.prefix.encode(),
        delimiter=call.query.get("delimiter", "").encode(),
        after=page.after.encode(),
        amount=page.amount,
    )
    return answer(paginated([_shown(difference) for difference in level], has_more, "path"))


def _shown(difference: Difference | bytes) -> dict[str, Any]:
    if isinstance(difference, bytes):
        return {"path": difference.decode(), "path_type": "common_prefix", "type": "prefix_changed"}
    record = difference.right or difference.left
    return {
        "path": difference.key.decode(),
        "path_type": "object",
        "size_bytes": record.size_bytes if record else 0,
        "type": difference.type.value,
    }


def list_branches(call: Call) -> Response:
    """``GET /repositories/{repository}/branches``."""
    show_hidden = call.flag("show_hidden")
    shown = [
        {"commit_id": branch.commit_id, "id": branch.name}
        for branch in call.sandbox.refs.branches(call.repository().name)
        if show_hidden or not branch.hidden
    ]
    return answer(page_of(shown, call.page()))


def create_branch(call: Call) -> Response:
    """``POST /repositories/{repository}/branches``: answers with the id of the commit, as plain text."""
    body = call.json("BranchCreation", name=(str,), source=(str,), force=bool, hidden=bool)
    repository, refs, name = call.checked_repository(), call.sandbox.refs, body["name"]
    required_text(name, "branch")
    if not is_branch_name(name):
        raise invalid("branch", "branch id: ", _BRANCH_RULE)
    required_text(body["source"], "ref")
    _refuse_conflict(refs, repository, name, tags=True)
    writable(repository, force=bool(body.get("force")))
    source = _source(call, repository, body["source"])
    if source.staging_only:
        raise ApiError(500, f"source reference '{body['source']}': can't create a branch without commit")
    with call.sandbox.lock(repository):
        if _exists(refs.branch, repository, name):
            raise already_exists("branch")
        refs.put_branch(repository.name, new_branch(name, source.commit_id, hidden=bool(body.get("hidden"))))
    return Response(source.commit_id, 201, media_type="text/plain")


def get_branch(call: Call) -> Response:
    """``GET /repositories/{repository}/branches/{branch}``."""
    branch = call.sandbox.refs.branch(call.repository().name, call.path["branch"])
    return answer({"commit_id": branch.commit_id, "id": branch.name})


def delete_branch(call: Call) -> Response:
    """``DELETE /repositories/{repository}/branches/{branch}``."""
    repository = writable(call.repository(), force=call.flag("force"))
    if call.path["branch"] == repository.default_branch:
        raise ApiError(403, "cannot delete repository default branch")
    with call.sandbox.lock(repository):
        call.sandbox.refs.delete_branch(repository.name, call.path["branch"])
    return no_content()


def reset_branch(call: Call) -> Response:
    """``PUT /repositories/{repository}/branches/{branch}``."""
    body = call.json("ResetCreation", type=(str,), path=str, force=bool)
    repository, branch, force = call.repository(), call.path["branch"], bool(body.get("force"))
    path = body.get("path") or ""
    if body["type"] == "reset":
        operations.reset(call.sandbox, repository, branch, force=force)
    elif body["type"] in ("object", "common_prefix"):
        is_prefix = body["type"] == "common_prefix"
        operations.reset_paths(call.sandbox, repository, branch, path.encode(), is_prefix=is_prefix, force=force)
    else:
        raise ApiError(400, "unknown reset type")
    return no_content()


def hard_reset_branch(call: Call) -> Response:
    """``PUT /repositories/{repository}/branches/{branch}/hard_reset``."""
    operations.hard_reset(
        call.sandbox, call.repository(), call.path["branch"], call.required("ref"), force=call.flag("force")
    )
    return no_content()


def diff_branch(call: Call) -> Response:
    """``GET /repositories/{repository}/branches/{branch}/diff``: the uncommitted changes."""
    repository, page = call.repository(), call.page()
    branch = call.sandbox.refs.branch(repository.name, call.path["branch"])
    return answer_differences(call, page, lambda start: uncommitted(call.sandbox, repository, branch, start))


def list_tags(call: Call) -> Response:
    """``GET /repositories/{repository}/tags``."""
    tags = call.sandbox.refs.tags(call.repository().name)
    return answer(page_of([{"commit_id": commit, "id": name} for name, commit in tags], call.page()))


def create_tag(call: Call) -> Response:
    """``POST /repositories/{repository}/tags``."""
    body = call.json("TagCreation", id=(str,), ref=(str,), force=bool)
    repository, refs, name = call.checked_repository(), call.sandbox.refs, body["id"]
    required_text(name, "tagID")
    if not is_tag_name(name):
        raise invalid("tagID", "tag id: ")
    _refuse_conflict(refs, repository, name, tags=False)
    resolved = refs.resolve(repository.name, body["ref"])
    if resolved.staging_only:
        raise ApiError(400, "ref: invalid value: validation error: should point to a commit")
    writable(repository, force=bool(body.get("force")))
    with call.sandbox.lock(repository):
        if _exists(refs.tag, repository, name):
            raise already_exists("tag")
        refs.put_tag(repository.name, name, resolved.commit_id)
    return answer({"commit_id": resolved.commit_id, "id": name}, 201)


def get_tag(call: Call) -> Response:
    """``GET /repositories/{repository}/tags/{tag}``."""
    commit = call.sandbox.refs.tag(call.repository().name, call.path["tag"])
    return answer({"commit_id": commit, "id": call.path["tag"]})


def delete_tag(call: Call) -> Response:
    """``DELETE /repositories/{repository}/tags/{tag}``."""
    repository = writable(call.repository(), force=call.flag("force"))
    call.sandbox.refs.delete_tag(repository.name, call.path["tag"])
    return no_content()


def _source(call: Call, repository: Repository, ref: str) -> Resolved:
    try:
        return call.sandbox.refs.resolve(repository.name, ref)
    except ApiError as error:
        raise ApiError(error.status, f"source reference '{ref}': {error.message}") from None


def _refuse_conflict(refs: Refs, repository: Repository, name: str, *, tags: bool) -> None:
    """Raise ``ApiError`` 409 if the name is already a commit, a tag or a branch."""
    if refs.has_commit(repository.name, name):
        raise ApiError(409, f"commit ID {name}: conflict found")
    if tags and _exists(refs.tag, repository, name):
        raise ApiError(409, f"tag ID {name}: conflict found")
    if not tags and _exists(refs.branch, repository, name):
        raise ApiError(409, f"branch name {name}: conflict found")


def _exists(get: Any, repository: Repository, name: str) -> bool:
    try:
        get(repository.name, name)
    except NotFound:
        return False
    return True


_ONE = "/repositories/{repository}/branches/{branch}"

ROUTES: RouteTable = [
    ("GET", "/repositories/{repository}/branches", list_branches),
    ("POST", "/repositories/{repository}/branches", create_branch),
    ("GET", _ONE, get_branch),
    ("DELETE", _ONE, delete_branch),
    ("PUT", _ONE, reset_branch),
    ("PUT", _ONE + "/hard_reset", hard_reset_branch),
    ("GET", _ONE + "/diff", diff_branch),
    ("GET", "/repositories/{repository}/tags", list_tags),
    ("POST", "/repositories/{repository}/tags", create_tag),
    ("GET", "/repositories/{repository}/tags/{tag}", get_tag),
    ("DELETE", "/repositories/{repository}/tags/{tag}", delete_tag),
]
