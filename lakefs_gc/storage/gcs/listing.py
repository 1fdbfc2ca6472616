"""Parse pages of Google's listings from JSON to Arrow.

Source: Google's documents, "Objects: list". A listing is in the byte order of the names, which is verified. Arrow reads
a page in the usual form: it makes no Python object for each key, and other threads run meanwhile. Python's parser reads
any other form. Both check that the page is complete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from lakefs_gc.errors import StorageError
from lakefs_gc.storage.base import LISTING_SCHEMA
from lakefs_gc.storage.gcs.client import LISTING_KIND, Answer
from lakefs_gc.storage.gcs.errors import IncompleteAnswerError

FIELDS = "kind,items(name,size,updated),prefixes,nextPageToken"
_NULL = re.compile(rb"null")
_ITEM = pa.struct([pa.field(name, pa.string()) for name in ("name", "size", "updated")])
_USUAL_FORM = arrow_json.ParseOptions(
    explicit_schema=pa.schema(
        {
            "kind": pa.string(),
            "items": pa.list_(_ITEM),
            "prefixes": pa.list_(pa.string()),
            "nextPageToken": pa.string(),
        }
    ),
    unexpected_field_behavior="error",
)


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


@dataclass(frozen=True)
class Parts:
    """The content of a page. Names, sizes and times are texts, and names have the root."""

    names: pa.StringArray
    sizes: pa.StringArray
    times: pa.StringArray
    levels: Sequence[str]
    token: str


def parse_page(answer: Answer, root: str, after: str, prefix: str = "") -> Page:
    """Parse a page whose names all start with ``root`` (the store's folder within its bucket), and with ``prefix``.

    ``after`` is the last name of the previous page, or ''. Raise ``IncompleteAnswerError`` unless the page is complete:
    a listing must never end early without an error. Raise ``StorageError`` unless the names ascend.
    """
    parts = read_quickly(answer.body) or read_carefully(answer)
    prefix = prefix or root
    is_below = pc.all(pc.starts_with(parts.names, prefix), min_count=0).as_py()
    if not (is_below and all(level.startswith(prefix) for level in parts.levels)):
        raise IncompleteAnswerError(f"the store returned names outside {prefix!r}")
    if not pc.all(pc.match_substring_regex(parts.sizes, r"\A[0-9]+\z"), min_count=0).as_py():
        raise IncompleteAnswerError("a size of the listing is not a number")  # Arrow reads hexadecimal ones, too
    names = pc.binary_replace_slice(parts.names, 0, len(root.encode()), "")  # binary_slice damages an array
    try:
        times = parts.times.cast(LISTING_SCHEMA.field("last_modified").type)
        objects = pa.RecordBatch.from_arrays([names, parts.sizes.cast(pa.int64()), times], schema=LISTING_SCHEMA)
    except pa.ArrowException as error:
        raise IncompleteAnswerError(f"a size or time of the listing cannot be parsed ({error})") from error
    _check_order(parts.names, after)
    is_marker = pc.or_(pc.equal(names, ""), pc.ends_with(names, "/"))
    return Page(
        objects=objects.filter(pc.invert(is_marker)) if pc.any(is_marker).as_py() else objects,
        sub_prefixes=[level[len(root) :] for level in parts.levels],
        next_token=parts.token,
        last_name=parts.names[-1].as_py() if len(parts.names) else "",
    )


def read_quickly(body: bytes) -> Parts | None:
    """Read a page with Arrow's parser; return None if it is not in the usual form.

    The usual form is one JSON object with the fields of ``FIELDS`` and no others, each at most once. It says that it is
    a page of a listing, and each object has a name, a size and a time.
    """
    if _NULL.search(body):  # for Arrow, a field that is null is missing: a token that is null would end the listing
        return None
    options = arrow_json.ReadOptions(use_threads=False, block_size=len(body) + 1)
    try:
        table = arrow_json.read_json(pa.BufferReader(body), options, _USUAL_FORM)
        table.validate(full=True)  # that texts are UTF-8
    except pa.ArrowInvalid:
        return None
    if table.num_rows != 1 or table["kind"][0].as_py() != LISTING_KIND:
        return None
    names, sizes, times = table["items"].combine_chunks().flatten().flatten()
    if any(column.null_count for column in (names, sizes, times)):
        return None
    levels, token = table["prefixes"][0].as_py(), table["nextPageToken"][0].as_py()
    return Parts(names, sizes, times, levels or [], token or "")


def read_carefully(answer: Answer) -> Parts:
    """Read a page with Python's parser. Raise ``IncompleteAnswerError`` unless it is a complete page."""
    document = answer.document()
    if document.get("kind") != LISTING_KIND:
        raise IncompleteAnswerError("the answer is not a page of a listing")
    if unknown := document.keys() - set(_USUAL_FORM.explicit_schema.names):
        raise IncompleteAnswerError(f"the listing has a field that was not requested: {min(unknown)[:100]!r}")
    items, levels, token = document.get("items", []), document.get("prefixes", []), document.get("nextPageToken", "")
    if not (isinstance(items, list) and isinstance(levels, list) and isinstance(token, str)):
        raise IncompleteAnswerError("a field of the listing has another type")
    try:
        names, sizes, times = (_to_array([item[field.name] for item in items]) for field in _ITEM)
        return Parts(names, sizes, times, _to_array(levels).to_pylist(), token)
    except (KeyError, TypeError, UnicodeEncodeError, pa.ArrowException) as error:
        raise IncompleteAnswerError(
            f"a name, size or time of the listing is missing or cannot be parsed ({type(error).__name__})"
        ) from error


def _to_array(texts: list[Any]) -> pa.StringArray:
    """Return texts as an array. Raise ``TypeError`` or ``pa.ArrowException`` if one is not a text."""
    array = pa.array(texts, pa.string())
    if array.null_count:
        raise TypeError("a text is null")
    return array


def _check_order(names: pa.StringArray, after: str) -> None:
    ascends = pc.all(pc.less(names[:-1], names[1:]), min_count=0).as_py() if len(names) else True
    if not ascends or (after and len(names) and names[0].as_py().encode() <= after.encode()):
        raise StorageError(
            "The store does not list in the order of the names, or repeats one, so a listing may be incomplete",
            remedy="Check whether a proxy in front of the store changes its answers. Nothing was deleted",
        )
