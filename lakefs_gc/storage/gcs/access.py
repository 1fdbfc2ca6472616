"""The URLs of Google Cloud Storage, and which endpoint and credentials lead to it.

lakeFS writes a namespace as ``gs://bucket/path``. The credentials are Google's application default credentials: the
file that GOOGLE_APPLICATION_CREDENTIALS names, those of ``gcloud auth application-default login``, or the service
account of the machine. STORAGE_EMULATOR_HOST, the variable of Google's own clients, leads to an emulator instead, which
gets no credentials.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import google.auth
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError

from lakefs_gc.errors import AccessDeniedError, ConfigurationError
from lakefs_gc.storage.urls import has_credentials, path_as_go_reads

SCHEME = "gs://"
EMULATOR = "STORAGE_EMULATOR_HOST"
CREDENTIALS_REMEDY = (
    "Set GOOGLE_APPLICATION_CREDENTIALS to the key file of a service account, run "
    "`gcloud auth application-default login`, or give the machine a service account"
)
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
_EXAMPLE = "Write gs://bucket/path"
_URL = re.compile(r"gs://(?:[^/?]*@)?(?P<bucket>[^/?]*)(?P<path>/[^?]*)?", re.IGNORECASE)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


@dataclass(frozen=True)
class BucketFolder:
    """A folder of a bucket. ``root`` is the prefix of all its objects: empty, or ending in a slash."""

    bucket: str
    root: str


def bucket_folder(url: str) -> BucketFolder:
    """Return the bucket and the prefix that a URL names, as lakeFS reads it.

    Raise ``ConfigurationError`` for a URL without a valid bucket, with a query, or with an empty, ``.`` or ``..`` part.
    """
    match = _URL.fullmatch(url)
    if match is None or has_credentials(url):
        raise ConfigurationError(f"{url!r} does not name a bucket of Google Cloud Storage", remedy=_EXAMPLE)
    try:
        path = path_as_go_reads(match["path"] or "").strip("/")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{url!r} is not valid UTF-8 when it is decoded", remedy=_EXAMPLE) from error
    parts = path.split("/") if path else []
    if any(part in ("", ".", "..") for part in parts) or not _BUCKET.fullmatch(match["bucket"]):
        raise ConfigurationError(
            f"{url!r} has an empty, '.' or '..' part, or an invalid name of a bucket", remedy=_EXAMPLE
        )
    return BucketFolder(match["bucket"], "".join(f"{part}/" for part in parts))


@dataclass(frozen=True)
class Access:
    """Where requests go, and Google's credentials for them; None for an emulator."""

    endpoint: str
    credentials: Any


def emulator_endpoint(environment: Mapping[str, str] | None = None) -> str:
    """Return the URL of the emulator, or an empty text. Raise ``ConfigurationError`` for an invalid one.

    Google's client for Go writes ``host:port``, the one for Python ``http://host:port``.
    """
    text = (os.environ if environment is None else environment).get(EMULATOR, "").strip()
    if not text:
        return ""
    endpoint = text if "://" in text else f"http://{text}"
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or has_credentials(endpoint):
        raise ConfigurationError(f"{EMULATOR} is not a plain URL", remedy=f"Write {EMULATOR}=http://127.0.0.1:4443")
    return endpoint.rstrip("/")


def find_access(environment: Mapping[str, str] | None = None) -> Access:
    """Return the endpoint and the credentials.

    Raise ``AccessDeniedError`` if there are no application default credentials or their file cannot be read, and
    ``ConfigurationError`` for an invalid emulator.
    """
    if emulator := emulator_endpoint(environment):
        return Access(emulator, None)
    try:
        credentials, _ = google.auth.default(scopes=_SCOPES)
        domain = getattr(credentials, "universe_domain", None) or "googleapis.com"
    except DefaultCredentialsError as error:
        raise AccessDeniedError("No usable Google credentials were found", remedy=CREDENTIALS_REMEDY) from error
    except (GoogleAuthError, OSError, ValueError) as error:
        # The text of the error may have a part of the file.
        raise AccessDeniedError(
            f"The Google credentials cannot be read ({type(error).__name__})", remedy=CREDENTIALS_REMEDY
        ) from None
    return Access(f"https://storage.{domain}", credentials)
