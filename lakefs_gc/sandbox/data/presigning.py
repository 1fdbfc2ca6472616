"""Sign URLs with which a client sends requests directly to the store; only for a store in S3."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from lakefs_gc.formats.entry import Entry
from lakefs_gc.sandbox.data.namespaces import Namespaces
from lakefs_gc.sandbox.problems import ApiError

LIFETIME_SECONDS = 900
"""How long a URL is valid: lakeFS's default."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Completed:
    """An object that was uploaded in parts."""

    e_tag: str
    size_bytes: int
    last_modified: datetime


class Presigner:
    """Signs with the credentials with which this process accesses the store."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._lock = threading.Lock()
        self._client: Any = None

    @property
    def is_supported(self) -> bool:
        """Return whether the store has presigned URLs."""
        return self._namespaces.blockstore_type == "s3"

    def check_supported(self) -> None:
        """Raise ``ApiError`` 400, with lakeFS's message, if the store has no presigned URLs."""
        if not self.is_supported:
            raise ApiError(400, "operation not supported")

    def read_url(self, namespace: str, entry: Entry) -> str:
        """Return a URL for a GET of an entry's bytes. Raise ``ApiError`` 400 if the store has no presigned URLs."""
        self.check_supported()
        store, key = self._namespaces.place(namespace, entry)
        return self._url("get_object", store.location.folder_url + key)

    def read_address_url(self, address: str) -> str:
        """Return a URL for a GET of the object at an address, which is a whole URL."""
        self.check_supported()
        return self._url("get_object", address)

    def write_url(self, address: str) -> str:
        """Return a URL for a PUT of an object to an address."""
        self.check_supported()
        return self._url("put_object", address)

    def part_url(self, address: str, upload_id: str, number: int) -> str:
        """Return a URL for a PUT of a part."""
        return self._url("upload_part", address, UploadId=upload_id, PartNumber=number)

    def begin(self, address: str) -> str:
        """Begin a multipart upload. Return its id."""
        answer = self._call(lambda s3: s3.create_multipart_upload(**_bucket_and_key(address)))
        return str(answer["UploadId"])

    def copy_part(self, address: str, upload_id: str, number: int, source: str, byte_range: str) -> str:
        """Copy a part from another object. Return its ETag in quotes. An empty range selects the whole object."""
        fields = {"CopySourceRange": byte_range} if byte_range else {}
        upload = {**_bucket_and_key(address), "UploadId": upload_id, "PartNumber": number}
        answer = self._call(lambda s3: s3.upload_part_copy(**upload, **fields, CopySource=_bucket_and_key(source)))
        return str(answer["CopyPartResult"]["ETag"])

    def complete(self, address: str, upload_id: str, parts: Sequence[tuple[int, str]]) -> Completed:
        """Combine the parts (number and ETag) into one object."""
        listed = [{"PartNumber": number, "ETag": e_tag} for number, e_tag in parts]
        upload = {**_bucket_and_key(address), "UploadId": upload_id, "MultipartUpload": {"Parts": listed}}

        def run(s3: Any) -> Completed:
            s3.complete_multipart_upload(**upload)
            head = s3.head_object(**_bucket_and_key(address))
            return Completed(head["ETag"].strip('"'), head["ContentLength"], head["LastModified"])

        return self._call(run)

    def abort(self, address: str, upload_id: str) -> None:
        """Abort a multipart upload."""
        self._call(lambda s3: s3.abort_multipart_upload(**_bucket_and_key(address), UploadId=upload_id))

    def _url(self, method: str, address: str, **fields: Any) -> str:
        parameters = {**_bucket_and_key(address), **fields}
        url: str = self._s3().generate_presigned_url(method, parameters, ExpiresIn=LIFETIME_SECONDS)
        return url

    def _call(self, request: Callable[[Any], Answer]) -> Answer:
        try:
            return request(self._s3())
        except ClientError as error:
            # As in lakeFS, every error of the store is an error of the server.
            raise ApiError(500, f"{error.operation_name}: {error.response['Error'].get('Code', '')}") from None
        except BotoCoreError as error:
            raise ApiError(500, f"the store does not answer: {type(error).__name__}") from None

    def _s3(self) -> Any:
        with self._lock:
            if self._client is None:
                session = boto3.Session()
                config = Config(signature_version="s3v4", request_checksum_calculation="when_required")
                self._client = session.client("s3", region_name=session.region_name or "us-east-1", config=config)
            return self._client


def _bucket_and_key(address: str) -> dict[str, str]:
    bucket, _, key = address.partition("://")[2].partition("/")
    return {"Bucket": bucket, "Key": key}
