"""The permissions that requests to Azure's and Google's stores need, and those that the documentation names.

What permission each request needs is from the vendors' references.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakefs_gc_tests.docs.generate import DOCS
from lakefs_gc_tests.support.store_proxy import StoreRequest

_PERMISSIONS = DOCS / "reference" / "permissions.md"
_HEADINGS = {"azure": "Azure", "gcs": "Google Cloud Storage"}
_BLOBS = "Microsoft.Storage/storageAccounts/blobServices"


def needed_in_azure(request: StoreRequest) -> Iterator[str]:
    """Yield the actions that a request needs, by Microsoft Learn's page of each operation."""
    method, _, *asked = request.operation
    if "service" in asked:
        yield f"{_BLOBS}/read"
    elif "account" in asked:
        return  # refused unless a key or a SAS signs it; the listing then shows what it asks for
    elif "batch" in asked:
        assert set(re.findall(rb"(?m)^(\w+) \S+ HTTP/1.1", request.body)) == {b"DELETE"}
        yield f"{_BLOBS}/containers/blobs/delete"
    elif "container" in asked and "list" not in asked:
        assert method in ("GET", "HEAD")
        yield f"{_BLOBS}/containers/read"
    else:
        action = {"GET": "read", "HEAD": "read", "PUT": "write", "DELETE": "delete"}[method]
        yield f"{_BLOBS}/containers/blobs/{action}"


def needed_in_google(request: StoreRequest) -> Iterator[str]:
    """Yield the permissions that a request needs: Google's documents, "IAM permissions for JSON methods"."""
    method, path, *_ = request.operation
    if path.startswith("/batch/"):
        for one, where in re.findall(r"(?m)^(GET|DELETE) (\S+) HTTP/1.1", request.body.decode()):
            yield from needed_in_google(StoreRequest((one, where), b""))
    elif path.startswith("/upload/"):
        assert method == "POST"
        yield "storage.objects.create"
    elif method == "POST":
        assert "/rewriteTo/" in path
        yield from ("storage.objects.get", "storage.objects.create")
    elif re.fullmatch(r"/storage/v1/b/[^/]+", path):
        assert method == "GET"
        yield "storage.buckets.get"
    elif path.endswith("/o"):
        assert method == "GET"
        yield "storage.objects.list"
    else:
        assert "/o/" in path
        yield f"storage.objects.{ {'GET': 'get', 'DELETE': 'delete'}[method] }"


def documented(kind: str) -> set[str]:
    """Return the permissions of the page."""
    text = _PERMISSIONS.read_text("utf-8").partition(f"\n## {_HEADINGS[kind]}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"`(Microsoft\.[\w./]+|storage\.\w+\.\w+)`", text))


def needed(kind: str, requests: list[StoreRequest]) -> set[str]:
    """Return the permissions that requests need."""
    needs = needed_in_azure if kind == "azure" else needed_in_google
    return {permission for request in requests for permission in needs(request)}
