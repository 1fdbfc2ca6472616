"""boto3 as a client of the gateway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from lakefs_gc.sandbox.server import SandboxServer


def s3_client(server: SandboxServer, **fields: Any) -> Any:
    credentials = {
        "aws_access_key_id": server.access_key_id,
        "aws_secret_access_key": server.secret_access_key,
        "region_name": "us-east-1",
    }
    config = Config(retries={"max_attempts": 1}, signature_version=fields.pop("signature_version", "s3v4"))
    return boto3.client("s3", endpoint_url=server.endpoint_url, config=config, **(credentials | fields))


def refusal(status: int, call: Callable[..., Any], **fields: Any) -> str:
    """Return the error code of a call that must fail with this status."""
    with pytest.raises(ClientError) as caught:
        call(**fields)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    return str(caught.value.response["Error"]["Code"])
