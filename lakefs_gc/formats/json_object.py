"""JSON objects in files that come from outside."""

from __future__ import annotations

import json
from typing import Any

from lakefs_gc.errors import CorruptFileError


def read_json_object(data: bytes, file: str, what: str, *, remedy: str = "") -> dict[str, Any]:
    """The object that a whole file is; ``what`` (``an approval``) is for the message.

    Raises ``CorruptFileError`` for what is no JSON, is another kind of JSON, holds ``NaN`` or ``Infinity`` (no JSON,
    though Python reads them) or half a surrogate pair (which no file can be written with), or nests too deep.
    """
    try:
        content = json.loads(data, parse_constant=_refuse)
        json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(file, f"not {what}: this is no JSON: {str(error)[:200]}", remedy=remedy) from None
    if not isinstance(content, dict):
        raise CorruptFileError(file, f"not {what}: this is no JSON object", remedy=remedy)
    return content


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
