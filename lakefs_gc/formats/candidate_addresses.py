"""Which objects of a namespace may ever be garbage, by their addresses alone, and which names lakeFS generates."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

_AT_ROOT = r"(?!(?:\.|\.\.|dummy|data|_lakefs)(?![\s\S]))[^/]+"
CANDIDATE_ADDRESS_REGEX = (
    r"^(?:"
    r"data(?:/(?!\.\.?(?:/|(?![\s\S])))[^/]+)+"  # in data/, no '.', '..' or empty part
    rf"|{_AT_ROOT}"  # directly at the root
    r")(?![\s\S])"
)
"""``is_candidate_address`` as a regular expression with the same meaning in Java (Spark's ``rlike``) and Python.

``(?![\\s\\S])`` is the end of the text: ``$`` would also match before a final line feed, which may be part of a key.
"""

_PART_SUFFIX = r"(?:\.part_[0-9]{5}(?:_[0-9]{1,2})*|\.multipart|_id|_size)"
UPLOAD_PART_REGEX = rf"^(?:[0-9a-f]{{32}}-[0-9]{{5}}|[\s\S]+{_PART_SUFFIX})(?![\s\S])"
"""The objects that lakeFS writes for unfinished multipart uploads in stores without uploads in parts of their own.

They are ``<upload>-<number>`` at the root of local stores (``pkg/block/local/adapter.go``), ``<object>.part_<number>``
and ``<object>.multipart`` in Google's (``pkg/block/gs/adapter.go``), with ``_<layer>`` behind the number if composed
from up to 32 parts (``compose.go``), and ``<object>_id`` and ``<object>_size`` in Azure's
(``pkg/block/azure/adapter.go``).
"""

_HEX_ID, _XID = r"[0-9a-f]{32}", r"[0-9a-v]{19}[0g]"
_ISSUED_AT_ROOT = rf"{_HEX_ID}(?:-[0-9]{{5}}|{_PART_SUFFIX})?|(?=[a-v]*[0-9]){_XID}{_PART_SUFFIX}?"
UNRECOGNIZED_NAME_REGEX = rf"^(?!(?:{_ISSUED_AT_ROOT})(?![\s\S])){_AT_ROOT}(?![\s\S])"
"""``has_unrecognized_name`` as a regular expression, for Java and Python."""
ISSUED_AT_ROOT_REGEX = rf"^(?:{_ISSUED_AT_ROOT})(?![\s\S])"
"""The other objects at the root, with a name that lakeFS generates. For Java and Python."""
_SHARDS = r"(?:!(?:[^/]+/)+)?"
_ISSUED_IN_DATA = rf"{_SHARDS}[0-9a-v]{{20}}/(?:{_XID}(?:,[A-Za-z0-9_-]{{43}})?|{_HEX_ID}){_PART_SUFFIX}?"
CHOSEN_NAME_REGEX = rf"^data/(?!(?:{_ISSUED_IN_DATA})(?![\s\S]))"
"""The objects in ``data/`` with a name that a client of lakeFS chose, or another program. For Java and Python.

lakeFS generates ``data/<xid>/<xid>``, also below shards (``ids.SHARD_MARK``), with a comma and a signature of 43
characters if a client asked for the address. It names the parts of an upload after it. Source: lakeFS
``pkg/upload/path_provider.go``, and ``GetAddressWithSignature`` in ``pkg/catalog/catalog.go``.
"""
_ISSUED_AT_ROOT_PYTHON = re.compile(_ISSUED_AT_ROOT)
_ISSUED_OR_WORD_RE2 = rf"\A(?:{_HEX_ID}(?:-[0-9]{{5}}|{_PART_SUFFIX})?|{_XID}{_PART_SUFFIX}?)\z"
_WORD_RE2 = rf"\A[a-v]{{20}}{_PART_SUFFIX}?\z"

_UNSAFE_PART_RE2 = r"(?:\A|/)\.{0,2}(?:/|\z)"
_DATA_FOLDER = "data/"
_RESERVED_AT_ROOT = ("dummy", "data", "_lakefs")
"""lakeFS writes ``dummy`` to test its access; the others are the two folders, which some stores show as markers."""


def is_candidate_address(address: str) -> bool:
    """Return whether an object at this address, relative to the namespace, can be garbage.

    True for objects in ``data/``, and for objects directly at the root, where old versions of lakeFS put them (see
    ``has_unrecognized_name``). False for all others: ``_lakefs/``, ``dummy``, other folders, directory markers (a final
    slash), and keys with empty, ``.`` or ``..`` parts, which some stores and tools resolve to other keys.
    """
    if any(part in ("", ".", "..") for part in address.split("/")):
        return False
    return address.startswith(_DATA_FOLDER) or ("/" not in address and address not in _RESERVED_AT_ROOT)


def are_candidate_addresses(addresses: pa.StringArray) -> pa.BooleanArray:
    """Return ``is_candidate_address`` of each address."""
    in_data = pc.starts_with(addresses, _DATA_FOLDER)
    reserved = pc.is_in(addresses, pa.array(_RESERVED_AT_ROOT))
    at_root = pc.and_not(pc.invert(pc.match_substring(addresses, "/")), reserved)
    return pc.and_not(pc.or_(in_data, at_root), pc.match_substring_regex(addresses, _UNSAFE_PART_RE2))


def has_unrecognized_name(address: str) -> bool:
    """Return whether an object is directly at the root with a name that lakeFS does not generate.

    If a namespace is a whole bucket, such an object (``terraform.tfstate``) may belong to any other program. lakeFS
    generated 32 hexadecimal digits (a UUID without its dashes) before 2022-11, and xids since then, and names the parts
    of both (``UPLOAD_PART_REGEX``). The last character of an xid has one bit, and an xid without any digit counts as a
    word.
    """
    at_root = "/" not in address and is_candidate_address(address)
    return at_root and _ISSUED_AT_ROOT_PYTHON.fullmatch(address) is None


def have_unrecognized_names(addresses: pa.StringArray) -> pa.BooleanArray:
    """Return ``has_unrecognized_name`` of each address."""
    at_root = pc.and_not(are_candidate_addresses(addresses), pc.match_substring(addresses, "/"))
    issued_or_word = pc.match_substring_regex(addresses, _ISSUED_OR_WORD_RE2)  # RE2 cannot look ahead
    return pc.and_not(at_root, pc.and_not(issued_or_word, pc.match_substring_regex(addresses, _WORD_RE2)))
