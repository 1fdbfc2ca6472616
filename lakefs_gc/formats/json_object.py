"""Read JSON objects from files that other programs may have written."""

from __future__ import annotations

import json
from typing import Any

from lakefs_gc.errors import CorruptFileError


def read_json_object(data: bytes, file: str, what: str, *, remedy: str = "") -> dict[str, Any]:
    """Return the JSON object of a whole file; ``what`` (``an approval``) appears in the message.

    Raise ``CorruptFileError`` if the file is not JSON or not an object, nests too deep, or contains ``NaN`` or
    ``Infinity`` (Python reads them, but they are not JSON) or half a surrogate pair (which no file can contain).
    """
    try:
        content = json.loads(data, parse_constant=_refuse)
        json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(file, f"not {what}: not valid JSON: {str(error)[:200]}", remedy=remedy) from None
    if not isinstance(content, dict):
        raise CorruptFileError(file, f"not {what}: not a JSON object", remedy=remedy)
    return content


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
