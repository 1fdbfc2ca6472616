"""Which keys a store accepts: everything that cannot lead out of its folder."""

from __future__ import annotations

from lakefs_gc.errors import NamespaceError


def check_key(key: str) -> str:
    """``key`` itself, if it names an object inside the store's folder.

    Refused with ``NamespaceError``: the empty key, an absolute one, one with a ``.`` or ``..`` part (HTTP
    clients resolve those parts before they send a request, so the request would reach another object), and
    one that is not valid Unicode. An empty part inside (``a//b``) is a key like any other on S3.
    """
    if not key:
        raise NamespaceError("the empty key names no object", remedy="give a key relative to the namespace")
    return check_prefix(key)


def check_prefix(prefix: str) -> str:
    """``prefix`` itself, if every key that starts with it lies in the store's folder; else
    ``NamespaceError``.
    """
    if prefix.startswith("/") or not {".", ".."}.isdisjoint(prefix.split("/")):
        raise NamespaceError(
            f"the key {prefix!r} leaves the namespace",
            remedy="give a key relative to the namespace, without '.' and '..' parts",
            key=prefix,
        )
    try:
        prefix.encode()
    except UnicodeEncodeError as error:
        raise NamespaceError(f"the key {prefix!r} is not valid UTF-8", remedy="give the key as it is") from error
    return prefix
