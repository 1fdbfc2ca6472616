"""EMR as far as moto plays it, and the jobs that it does not run: their very command lines, as processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest
from dagster._core.pipes import utils

from lakefs_gc_tests.support.dagster_fixtures import instance
from lakefs_gc_tests.support.emr import EMR, ENTRY_POINT, MESSAGES, ROLE
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lake_fixtures import lake_of_environment, repository_with_garbage

__all__ = ["instance", "lake_of_environment", "repository_with_garbage"]


@pytest.fixture
def emr(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EMR]:
    """EMR and S3 by moto, at an address that processes reach, too."""
    server_module = pytest.importorskip("moto.server", reason="moto is not installed")
    import moto.emrserverless.models

    server = server_module.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST"))  # what tests before this one left
        boto3.client("s3").create_bucket(Bucket=MESSAGES)
        serverless: Any = boto3.client("emr-serverless")
        application = serverless.create_application(releaseLabel="emr-7.9.0", type="SPARK")["applicationId"]
        # moto does not find the jobs of an application that has had none.
        serverless.start_job_run(applicationId=application, executionRoleArn=ROLE)
        monkeypatch.setattr(utils, "DEFAULT_SLEEP_INTERVAL", 0.1)  # of Dagster's readers, after each look
        # moto's jobs have ended when they begin.
        monkeypatch.setattr(moto.emrserverless.models, "JOB_STATUS", "SUBMITTED")
        entry_point = tmp_path / "lakefs-gc.py"
        entry_point.write_text(ENTRY_POINT)
        (tmp_path / "driver").mkdir()
        with EMR(tmp_path / "driver", application, entry_point) as played:
            yield played
    finally:
        server.stop()
