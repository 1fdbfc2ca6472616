"""A server that places the namespaces of repositories elsewhere, and settings with another workspace."""

from __future__ import annotations

from lakefs_gc.config import Settings
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy


def elsewhere(lake: Lake, proxy: LakeFSProxy, places: dict[str, str]) -> LakeFSClient:
    """Return a client of a server that reports other namespaces for these repositories."""

    def move(asked: Asked, answer: Answered) -> Answered:
        results = [
            r | {"storage_namespace": places.get(r["id"], r["storage_namespace"])} for r in answer.json["results"]
        ]
        return answer.with_json(results=results)

    proxy.instead("/repositories", move)
    return LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))


def elsewhere_at_work(lake: Lake) -> Settings:
    """Return settings with another workspace, in which nothing was read for the mark."""
    return lake.settings.model_copy(update={"work_url": (lake.folder / "elsewhere").as_uri()})
