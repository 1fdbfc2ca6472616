"""The routes of garbage collection: retention rules, and the two preparations."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.gc_rules import rules_from_api, rules_to_api
from lakefs_gc.sandbox.context import Sandbox, writable
from lakefs_gc.sandbox.data import garbage
from lakefs_gc.sandbox.data.garbage import PreparedCommits
from lakefs_gc.sandbox.problems import ApiError, NotFound
from lakefs_gc.sandbox.routes.call import Call, RouteTable, answer, check_fields, no_content
from lakefs_gc.sandbox.tasks import PREPARE_COMMITS_PREFIX, Status, new_task_id


def get_rules(call: Call) -> Response:
    """``GET /repositories/{repository}/settings/gc_rules``."""
    return answer(rules_to_api(garbage.rules(call.sandbox, call.repository())))


def set_rules(call: Call) -> Response:
    """``PUT /repositories/{repository}/settings/gc_rules``."""
    body = call.json("GarbageCollectionRules", default_retention_days=(int,), branches=(list,))
    for number, rule in enumerate(body["branches"]):
        place = f"/branches/{number}"
        check_fields(rule, "GarbageCollectionRules", _RULE, place)
    try:
        rules = rules_from_api(body)
    except ConfigurationError as error:
        raise ApiError(400, f"request body has an error: {error.message}") from None
    garbage.set_rules(call.sandbox, call.repository(), rules)
    return no_content()


def delete_rules(call: Call) -> Response:
    """``DELETE /repositories/{repository}/settings/gc_rules``."""
    garbage.set_rules(call.sandbox, call.repository(), None)
    return no_content()


def may_set_rules(call: Call) -> Response:
    """``GET /repositories/{repository}/gc/rules/set_allowed``: allowed, even for a missing repository."""
    return no_content()


def prepare_commits(call: Call) -> Response:
    """``POST /repositories/{repository}/gc/prepare_commits``."""
    return answer(_shown(call.sandbox, garbage.prepare_commits(call.sandbox, call.checked_repository())), 201)


def prepare_commits_async(call: Call) -> Response:
    """``POST /repositories/{repository}/gc/prepare_commits/async``."""
    sandbox, repository = call.sandbox, writable(call.checked_repository())
    task_id = new_task_id(PREPARE_COMMITS_PREFIX)
    sandbox.tasks.begin(repository.name, task_id, {"task_id": task_id})

    def work() -> Status:
        return {"result": _shown(sandbox, garbage.prepare_commits(sandbox, repository))}

    sandbox.in_background(sandbox.tasks.run(repository.name, task_id, work))
    return answer({"id": task_id}, 202)


def prepare_commits_status(call: Call) -> Response:
    """``GET /repositories/{repository}/gc/prepare_commits/status``."""
    task_id = call.required("id")
    repository = call.repository()
    if not task_id.startswith(PREPARE_COMMITS_PREFIX):
        raise NotFound
    return answer(call.sandbox.tasks.status(repository.name, task_id))


def prepare_uncommitted(call: Call) -> Response:
    """``POST /repositories/{repository}/gc/prepare_uncommited`` (one t)."""
    body = call.json("PrepareGCUncommittedRequest", continuation_token=str) if call.body else {}
    token = body.get("continuation_token") or ""
    position = garbage.decode_position(token) if token else None
    page = garbage.prepare_uncommitted(call.sandbox, call.checked_repository(), position)
    shown = {"gc_uncommitted_location": page.location, "run_id": page.run_id}
    if page.continuation_token:
        shown["continuation_token"] = page.continuation_token
    return answer(shown, 201)


def get_config(call: Call) -> Response:
    """``GET /config/garbage-collection``."""
    return answer({"grace_period": call.sandbox.options.grace_period_seconds})


def _shown(sandbox: Sandbox, prepared: PreparedCommits) -> dict[str, Any]:
    shown = {
        "gc_addresses_location": prepared.addresses_location,
        "gc_commits_location": prepared.commits_location,
        "run_id": prepared.run_id,
    }
    if sandbox.presigner.is_supported:
        shown["gc_commits_presigned_url"] = sandbox.presigner.read_address_url(prepared.commits_location)
    return shown


_RULE: dict[str, type | tuple[type, ...]] = {"branch_id": (str,), "retention_days": (int,)}
_REPOSITORY = "/repositories/{repository}"

ROUTES: RouteTable = [
    ("GET", _REPOSITORY + "/settings/gc_rules", get_rules),
    ("PUT", _REPOSITORY + "/settings/gc_rules", set_rules),
    ("DELETE", _REPOSITORY + "/settings/gc_rules", delete_rules),
    # Deprecated by lakeFS, but still available.
    ("GET", _REPOSITORY + "/gc/rules", get_rules),
    ("POST", _REPOSITORY + "/gc/rules", set_rules),
    ("DELETE", _REPOSITORY + "/gc/rules", delete_rules),
    ("GET", _REPOSITORY + "/gc/rules/set_allowed", may_set_rules),
    ("POST", _REPOSITORY + "/gc/prepare_commits", prepare_commits),
    ("POST", _REPOSITORY + "/gc/prepare_commits/async", prepare_commits_async),
    ("GET", _REPOSITORY + "/gc/prepare_commits/status", prepare_commits_status),
    ("POST", _REPOSITORY + "/gc/prepare_uncommited", prepare_uncommitted),
    ("GET", "/config/garbage-collection", get_config),
]
