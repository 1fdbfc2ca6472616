"""Authenticate the only user, "admin", with HTTP basic authentication or the token of a login.

Credentials are checked on loopback too: a collector that omits them must fail here as on a real server.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import string
from dataclasses import dataclass, field

from lakefs_gc.sandbox.clock import Clock
from lakefs_gc.sandbox.problems import ApiError

USER = "admin"
LOGIN_SECONDS = 7 * 24 * 3600
_JWT_HEADER = {"alg": "HS256", "typ": "JWT"}
_KEY_CHARACTERS = string.ascii_uppercase + string.digits


@dataclass(frozen=True)
class Credentials:
    """An access key; the secret is kept out of its ``repr``."""

    access_key_id: str
    secret_access_key: str = field(repr=False)


def new_credentials() -> Credentials:
    """Return new random credentials in lakeFS's form."""
    key = "".join(secrets.choice(_KEY_CHARACTERS) for _ in range(14))
    return Credentials(f"AKIAJ{key}Q", secrets.token_urlsafe(30))


def unauthenticated() -> ApiError:
    """Return the error 401 with lakeFS's message."""
    return ApiError(401, "error authenticating request")


class Authenticator:
    """Checks that a request comes from the only user of the sandbox."""

    def __init__(self, credentials: Credentials, secret: str, clock: Clock) -> None:
        self._credentials = credentials
        self._secret = secret.encode()
        self._clock = clock

    def check(self, authorization: str) -> None:
        """Raise ``ApiError`` 401 unless the header ``Authorization`` carries the credentials or a valid
        token.
        """
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "basic":
            try:
                user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                raise unauthenticated() from None
            self.check_credentials(user, password)
        elif scheme.lower() == "bearer":
            self._check_token(value.strip())
        else:
            raise unauthenticated()

    def check_credentials(self, access_key_id: str, secret_access_key: str) -> None:
        """Raise ``ApiError`` 401 unless these are the credentials."""
        right_key = _equal(access_key_id, self._credentials.access_key_id)
        right_secret = _equal(secret_access_key, self._credentials.secret_access_key)
        if not (right_key and right_secret):
            raise unauthenticated()

    def login(self) -> tuple[str, int]:
        """Return a token (a JWT), and when it expires, in seconds since 1970."""
        expires = int(self._clock().timestamp()) + LOGIN_SECONDS
        claims = {"sub": USER, "aud": "login", "exp": expires}
        body = f"{_encoded(json.dumps(_JWT_HEADER).encode())}.{_encoded(json.dumps(claims).encode())}"
        return f"{body}.{self._signature(body)}", expires

    def _check_token(self, token: str) -> None:
        body, _, signature = token.rpartition(".")
        if not _equal(signature, self._signature(body)):
            raise unauthenticated()
        claims = json.loads(base64.urlsafe_b64decode(body.partition(".")[2] + "=="))
        if self._clock().timestamp() >= claims["exp"]:
            raise unauthenticated()

    def _signature(self, body: str) -> str:
        return _encoded(hmac.new(self._secret, body.encode(), hashlib.sha256).digest())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _equal(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode(), right.encode())
