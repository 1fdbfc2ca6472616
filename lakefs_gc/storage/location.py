"""The location of a store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoreLocation:
    """The location of a store; it pickles, and holds no credentials.

    ``url`` is ``file:///folder`` or ``s3://bucket/prefix``, with or without a final slash. The endpoint and the
    credentials of S3 come from the standard AWS chain of the process that opens the store: environment variables
    (including ``AWS_ENDPOINT_URL_S3``), profile, instance role.
    """

    url: str

    @property
    def folder_url(self) -> str:
        """Return the URL with exactly one final slash, so that it is a prefix of its own content only."""
        return self.url.rstrip("/") + "/"
