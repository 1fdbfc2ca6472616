"""Where a store is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoreLocation:
    """Where a store is; pickles, and holds no credentials.

    ``url`` is ``file:///folder`` or ``s3://bucket/prefix``, with or without a final slash. The endpoint and
    the credentials of S3 come from the standard AWS chain of the process that opens the store (environment
    variables, ``AWS_ENDPOINT_URL_S3`` included, profile, instance role).
    """

    url: str

    @property
    def folder_url(self) -> str:
        """The URL with exactly one final slash, so that it is a prefix of nothing but its own content."""
        return self.url.rstrip("/") + "/"
