"""The keys that a store accepts: all that cannot lead out of its folder."""

from __future__ import annotations

from lakefs_gc.errors import NamespaceError


def check_key(key: str) -> str:
    """Return ``key`` if it names an object inside the store's folder, else raise ``NamespaceError``.

    Refused are the empty key, absolute keys, keys that are not valid Unicode, and keys with a ``.`` or ``..`` part:
    HTTP clients resolve these parts before they send a request, so the request would reach another object. An empty
    part inside (``a//b``) is permitted, because S3 has such keys.
    """
    if not key:
        raise NamespaceError("An empty key does not name an object", remedy="Pass a key relative to the namespace")
    return check_prefix(key)


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if every key that starts with it is in the store's folder, else raise ``NamespaceError``."""
    if prefix.startswith("/") or not {".", ".."}.isdisjoint(prefix.split("/")):
        raise NamespaceError(
            f"The key {prefix!r} leaves the namespace",
            remedy="Pass a key relative to the namespace, without '.' and '..' parts",
            key=prefix,
        )
    try:
        prefix.encode()
    except UnicodeEncodeError as error:
        raise NamespaceError(
            f"The key {prefix!r} is not valid UTF-8", remedy="Pass the key exactly as the store has it"
        ) from error
    return prefix
