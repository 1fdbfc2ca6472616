"""Issue physical addresses (``data/<slice>/<object id>``), and sign those that clients upload to directly.

Source: lakeFS ``pkg/upload/path_provider.go``, and ``VerifyLinkAddress`` in ``pkg/catalog/catalog.go``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import threading
from datetime import timedelta

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.ids import SHARD_MARK, new_reversed_id, new_xid, xid_time
from lakefs_gc.sandbox.clock import Clock
from lakefs_gc.sandbox.problems import ApiError

DATA_FOLDER = "data/"
_SIGNATURE_DELIMITER = ","


class AddressProvider:
    """Creates new addresses. A new slice begins at the start, after ``slice_seconds``, and after ``slice_size``
    addresses. Its name sorts before the names of all older slices.

    ``is_sharded``: the slice is two folders deeper, in a shard that depends on the object id
    (``data/!ab/c/<slice>/<object id>``).
    """

    def __init__(self, clock: Clock, *, slice_seconds: float, slice_size: int, is_sharded: bool = False) -> None:
        self._clock = clock
        self._slice_age = timedelta(seconds=slice_seconds)
        self._slice_size = slice_size
        self._is_sharded = is_sharded
        self._lock = threading.Lock()
        self._open_slice()

    def new_address(self) -> str:
        """Return a new unique address, relative to the namespace."""
        with self._lock:
            if self._used == self._slice_size or self._clock() - self._opened_at > self._slice_age:
                self._open_slice()
            self._used += 1
            object_id = new_xid(self._clock())
            return f"{DATA_FOLDER}{self._shard(object_id)}{self._slice}/{object_id}"

    def _shard(self, object_id: str) -> str:
        if not self._is_sharded:
            return ""
        digest = hashlib.sha256(object_id.encode()).hexdigest()
        return f"{SHARD_MARK}{digest[:2]}/{digest[2]}/"

    def _open_slice(self) -> None:
        self._opened_at = self._clock()
        self._slice = new_reversed_id(self._opened_at)
        self._used = 0


class AddressSigner:
    """Signs an address for one repository, branch and path. A signature is valid for ``lifetime_seconds``."""

    def __init__(self, key: str, clock: Clock, *, lifetime_seconds: float) -> None:
        self._key = key.encode()
        self._clock = clock
        self._lifetime = timedelta(seconds=lifetime_seconds)

    def sign(self, repository: str, branch: str, path: str, address: str) -> str:
        """Return the address with its signature, which becomes part of the object's key."""
        digest = self._digest(_signed_text(repository, branch, path, address))
        signature = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return address + _SIGNATURE_DELIMITER + signature

    def verify(self, repository: str, branch: str, path: str, signed_address: str) -> None:
        """Raise ``ApiError``, with lakeFS's message, unless the address has a valid signature for this path."""
        address, delimiter, signature = signed_address.rpartition(_SIGNATURE_DELIMITER)
        if not delimiter:
            raise ApiError(400, "address is not signed: link address invalid")
        text = _signed_text(repository, branch, path, address)
        try:
            if "=" in signature:
                raise ValueError
            padded = signature.encode("ascii") + b"=" * (-len(signature) % 4)
            digest = base64.b64decode(padded, altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise ApiError(400, f"malformed address signature: {text}: link address invalid") from None
        if not hmac.compare_digest(digest, self._digest(text)):
            raise ApiError(400, "invalid address signature: invalid address")
        object_id = address.rpartition("/")[2]
        try:
            issued_at = xid_time(object_id)
        except ConfigurationError:
            raise ApiError(500, "xid: invalid ID") from None
        if self._clock() - issued_at > self._lifetime:
            raise ApiError(400, "link address expired")

    def _digest(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode(), hashlib.sha256).digest()


def _signed_text(repository: str, branch: str, path: str, address: str) -> str:
    fields = {"Repository": repository, "Branch": branch, "Path": path, "PhysicalAddress": address}
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")  # as Go does
