"""Parse pages of Google's listings from JSON to Arrow.

Source: Google's documents, "Objects: list". A listing is in the byte order of the names, which is verified.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.errors import StorageError
from lakefs_gc.storage.base import LISTING_SCHEMA
from lakefs_gc.storage.gcs.client import LISTING_KIND, Answer
from lakefs_gc.storage.gcs.errors import IncompleteAnswerError

FIELDS = "kind,items(name,size,updated),prefixes,nextPageToken"


@dataclass(frozen=True)
class Page:
    """One page: objects of ``LISTING_SCHEMA`` without directory markers, sub-prefixes, and the next token.

    Names are relative to the root of ``parse_page``; ``next_token`` is '' on the last page. ``last_name`` is the last
    name of the page with the root, or '' if it has none.
    """

    objects: pa.RecordBatch
    sub_prefixes: list[str]
    next_token: str
    last_name: str


def parse_page(answer: Answer, root: str, after: str) -> Page:
    """Parse a page whose names all start with ``root`` (the store's folder within its bucket).

    ``after`` is the last name of the previous page, or ''. Raise ``IncompleteAnswerError`` unless the page is complete:
    a listing must never end early without an error. Raise ``StorageError`` unless the names ascend.
    """
    document = answer.document()
    if document.get("kind") != LISTING_KIND:
        raise IncompleteAnswerError("the answer is not a page of a listing")
    try:
        items, levels = document.get("items", []), document.get("prefixes", [])
        full_names, token = [item["name"] for item in items], document.get("nextPageToken", "")
        if not all(name.startswith(root) for name in (*full_names, *levels)):
            raise IncompleteAnswerError(f"the store returned names outside {root!r}")
        names = pa.array([name[len(root) :] for name in full_names], pa.string())
        sizes = pa.array([item["size"] for item in items], pa.string()).cast(pa.int64())
        times = pa.array([item["updated"] for item in items], pa.string())
        objects = pa.RecordBatch.from_arrays(
            [names, sizes, times.cast(LISTING_SCHEMA.field("last_modified").type)], schema=LISTING_SCHEMA
        )
        objects.validate(full=True)
    except (KeyError, TypeError, AttributeError, UnicodeEncodeError, pa.ArrowException) as error:
        raise IncompleteAnswerError(
            f"a name, size or time of the listing is missing or cannot be parsed ({type(error).__name__})"
        ) from error
    if not isinstance(token, str):
        raise IncompleteAnswerError("the token of the next page is not a text")
    _check_order(names, full_names, after)
    is_marker = pc.or_(pc.equal(names, ""), pc.ends_with(names, "/"))
    return Page(
        objects=objects.filter(pc.invert(is_marker)) if pc.any(is_marker).as_py() else objects,
        sub_prefixes=[level[len(root) :] for level in levels],
        next_token=token,
        last_name=full_names[-1] if full_names else "",
    )


def _check_order(names: pa.StringArray, full_names: list[str], after: str) -> None:
    ascends = pc.all(pc.less(names[:-1], names[1:]), min_count=0).as_py() if len(names) else True
    if not ascends or (after and full_names and full_names[0].encode() <= after.encode()):
        raise StorageError(
            "The store does not list in the order of the names, or repeats one, so a listing may be incomplete",
            remedy="Check whether a proxy in front of the store changes its answers. Nothing was deleted",
        )
