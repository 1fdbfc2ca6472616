"""The location of a store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoreLocation:
    """The location of a store; it pickles, and holds no credentials.

    ``url`` is ``file:///folder``, ``s3://bucket/prefix``, ``gs://bucket/path`` or
    ``https://ACCOUNT.blob.core.windows.net/container/path``, with or without a final slash. The endpoint and the
    credentials come from the vendor's standard chain in the process that opens the store: for S3 environment variables
    (including ``AWS_ENDPOINT_URL_S3``), profile, instance role; for Azure and Google see ``storage/azure/access.py``
    and ``storage/gcs/access.py``.
    """

    url: str

    @property
    def folder_url(self) -> str:
        """Return the URL with exactly one final slash, so that it is a prefix of its own content only."""
        return self.url.rstrip("/") + "/"
