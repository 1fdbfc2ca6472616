"""The settings for running marks, backups and sweeps as jobs on Amazon EMR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from lakefs_gc.config.section import Section, looks_like_secret
from lakefs_gc.storage.urls import has_credentials

EMRKind = Literal["emr", "emr-serverless"]

_NEEDED = {"emr": ("ReleaseLabel", "Instances"), "emr-serverless": ("applicationId", "executionRoleArn")}
_OURS = {"emr": "Steps", "emr-serverless": "jobDriver"}
_REFERENCE = "EMR.secret@"
"""What a value begins with that EMR looks up in AWS Secrets Manager."""


class EMRSettings(Section):
    """How Dagster starts the jobs.  What Spark is told is in the table ``spark``, as for any other run."""

    kind: EMRKind = Field(
        description="emr: each job has a cluster, which ends with it.  emr-serverless: jobs of an application."
    )
    entry_point: str = Field(
        min_length=1,
        description="URL of the Python file that calls lakefs_gc.cli.main(), e.g. s3://bucket/lakefs-gc.py.",
    )
    messages_bucket: str = Field(
        min_length=1,
        description="S3 bucket for what Dagster and a job say to each other, below random prefixes; best with a "
        "lifecycle rule that expires it.",
    )
    region: str = Field(default="", description="AWS region of EMR; default: that of the standard chain.")
    poll_seconds: float = Field(default=15.0, gt=0, description="How often the state of a job is asked for.")
    request: dict[str, Any] = Field(
        default_factory=dict,
        description="The rest of EMR's request, RunJobFlow or StartJobRun, in its own names: roles, release, instances "
        "or application, logs.  The table of the step or of the job's driver is made here.",
    )

    @field_validator("request")
    @classmethod
    def _no_secrets(cls, request: dict[str, Any]) -> dict[str, Any]:
        """Settings are shown in Dagster, and EMR shows what it was asked for."""
        for name, value in _texts("request", request):
            if has_credentials(value) or (looks_like_secret(name, value) and not value.startswith(_REFERENCE)):
                raise ValueError(
                    f"{name} looks like a secret, and settings are shown; put it into AWS Secrets Manager, and write "
                    f"{_REFERENCE}<name or ARN>"
                )
        return request

    @model_validator(mode="after")
    def _a_whole_request(self) -> Self:
        missing = [name for name in _NEEDED[self.kind] if not self.request.get(name)]
        if missing:
            raise ValueError(f"request lacks {' and '.join(missing)}, which kind = {self.kind!r} needs")
        if _OURS[self.kind] in self.request:
            raise ValueError(
                f"request has {_OURS[self.kind]}, which is made here; Spark's settings go to the table spark"
            )
        return self

    @model_validator(mode="after")
    def _one_attempt(self) -> Self:
        """A job that failed is for a person: begun again it would mark or sweep unasked, and report over the first.

        Batch jobs have one attempt by default; streaming jobs are begun again whatever ``retryPolicy`` says.
        """
        if self.kind == "emr-serverless":
            policy = self.request.get("retryPolicy", {})
            if not isinstance(policy, dict) or policy.get("maxAttempts", 1) != 1:
                raise ValueError(
                    f"request has retryPolicy = {policy}, which would run a failed job again; leave it out, and start "
                    "the run again in Dagster"
                )
            if self.request.get("mode", "BATCH") != "BATCH":
                raise ValueError(
                    "request has a mode other than BATCH, in which a failed job is run again; leave it out"
                )
        return self


def _texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Each text in a nested value, with the name it has."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(str(key), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(name, inner)
