"""The routes of repositories and their metadata."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from lakefs_gc.errors import ObjectNotFoundError, StorageError
from lakefs_gc.sandbox.context import Sandbox, writable
from lakefs_gc.sandbox.problems import ApiError, NotFound, invalid
from lakefs_gc.sandbox.routes.call import Call, RouteTable, answer, no_content, page_of, text_map
from lakefs_gc.sandbox.versions.branches import new_branch
from lakefs_gc.sandbox.versions.commits import first_commit
from lakefs_gc.sandbox.versions.refs import Repository, is_branch_name, is_repository_name
from lakefs_gc.storage.base import ObjectStore

_DUMMY = "dummy"
_DUMMY_KEY = "_lakefs/dummy"
_DUMMY_CONTENT = b"this is dummy data - created by lakeFS to check accessibility"


def _shown(repository: Repository) -> dict[str, Any]:
    return {
        "creation_date": repository.creation_date,
        "default_branch": repository.default_branch,
        "id": repository.name,
        "read_only": repository.read_only,
        "storage_id": "",
        "storage_namespace": repository.storage_namespace,
    }


def list_repositories(call: Call) -> Response:
    """``GET /repositories``."""
    search = call.query.get("search", "")
    shown = [_shown(repository) for repository in call.sandbox.refs.repositories()]
    return answer(page_of([item for item in shown if search in item["id"]], call.page()))


def create_repository(call: Call) -> Response:
    """``POST /repositories``."""
    body = call.json(
        "RepositoryCreation",
        name=(str,),
        storage_namespace=(str,),
        default_branch=str,
        read_only=bool,
        sample_data=bool,
        storage_id=str,
    )
    sandbox, name, namespace = call.sandbox, body["name"], body["storage_namespace"]
    try:
        sandbox.refs.repository(name)
    except NotFound:
        pass
    else:
        raise ApiError(409, "error creating repository: not unique")
    if body.get("storage_id"):
        raise ApiError(400, "storage id: invalid value: validation error")
    if body.get("sample_data"):
        raise ApiError(501, "Not Implemented")
    sandbox.namespaces.check_namespace(namespace)
    is_bare = call.flag("bare")
    default_branch = body.get("default_branch") or "main"
    if not is_repository_name(name):
        problem = invalid("name", "repository id: ")
        raise ApiError(400, f"error creating repository: {problem.message}")
    if not is_branch_name(default_branch):
        problem = invalid("defaultBranch", "branch id: ")
        raise ApiError(400, f"error creating repository: {problem.message}")
    repository = Repository(name, namespace, default_branch, sandbox.now_seconds(), bool(body.get("read_only")))
    if not is_bare and not repository.read_only:
        _claim_namespace(sandbox, repository)
    with sandbox.database.write():
        sandbox.refs.add_repository(repository)
        if not is_bare:
            commit = first_commit(sandbox)
            sandbox.refs.add_commit(name, commit)
            sandbox.refs.put_branch(name, new_branch(default_branch, commit.id))
    return answer(_shown(repository), 201)


def _claim_namespace(sandbox: Sandbox, repository: Repository) -> None:
    store = sandbox.namespaces.store(repository.folder)
    namespace = repository.storage_namespace
    in_use = "storage namespace already in use"
    try:
        if _exists(store, _DUMMY):
            where = f"found lakeFS objects in the storage root (:{namespace})"
            raise ApiError(400, f"failed to create repository: {where}: {in_use}")
        if not store.put(_DUMMY_KEY, _DUMMY_CONTENT, if_absent=True):
            where = f"found lakeFS objects in the storage (:{namespace}) key({_DUMMY_KEY})"
            raise ApiError(400, f"failed to create repository: {where}: {in_use}")
    except StorageError:
        raise ApiError(400, "failed to create repository: failed to access storage") from None


def _exists(store: ObjectStore, key: str) -> bool:
    try:
        return bool(store.stat_many([key]))
    except ObjectNotFoundError:  # a local folder that does not exist yet
        return False


def get_repository(call: Call) -> Response:
    """``GET /repositories/{repository}``."""
    return answer(_shown(call.repository()))


def delete_repository(call: Call) -> Response:
    """``DELETE /repositories/{repository}``."""
    repository = writable(call.repository(), force=call.flag("force"))
    with call.sandbox.lock(repository):
        call.sandbox.refs.delete_repository(repository.name)
    return no_content()


def get_metadata(call: Call) -> Response:
    """``GET /repositories/{repository}/metadata``."""
    return answer(call.repository().metadata)


def set_metadata(call: Call) -> Response:
    """``POST /repositories/{repository}/metadata``."""
    repository = writable(call.repository())
    metadata = text_map(call.json("RepositoryMetadataSet", metadata=(dict,)), "metadata")
    call.sandbox.refs.set_metadata(repository.name, {**repository.metadata, **metadata})
    return no_content()


def delete_metadata(call: Call) -> Response:
    """``DELETE /repositories/{repository}/metadata``."""
    repository = writable(call.repository())
    keys = set(call.json("RepositoryMetadataKeys", keys=(list,))["keys"])
    left = {key: value for key, value in repository.metadata.items() if key not in keys}
    call.sandbox.refs.set_metadata(repository.name, left)
    return no_content()


ROUTES: RouteTable = [
    ("GET", "/repositories", list_repositories),
    ("POST", "/repositories", create_repository),
    ("GET", "/repositories/{repository}", get_repository),
    ("DELETE", "/repositories/{repository}", delete_repository),
    ("GET", "/repositories/{repository}/metadata", get_metadata),
    ("POST", "/repositories/{repository}/metadata", set_metadata),
    ("DELETE", "/repositories/{repository}/metadata", delete_metadata),
]
