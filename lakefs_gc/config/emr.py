"""The settings that run marks, backups and sweeps as jobs on Amazon EMR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from lakefs_gc.config.section import Section, looks_like_secret
from lakefs_gc.storage.urls import has_credentials

EMRKind = Literal["emr", "emr-serverless"]

_REQUIRED = {"emr": ("ReleaseLabel", "Instances"), "emr-serverless": ("applicationId", "executionRoleArn")}
_GENERATED = {"emr": "Steps", "emr-serverless": "jobDriver"}
_REFERENCE = "EMR.secret@"
"""The prefix of a value that EMR looks up in AWS Secrets Manager."""


class EMRSettings(Section):
    """How Dagster starts jobs on EMR. Spark's own configuration is in the table ``spark``, as for any other run."""

    kind: EMRKind = Field(
        description="Kind of job. emr: each job starts a cluster, which ends with the job. emr-serverless: each job "
        "runs in an existing EMR Serverless application, which starts faster."
    )
    entry_point: str = Field(
        min_length=1,
        description="URL of the Python file that a job runs, e.g. s3://bucket/lakefs-gc.py. The file calls "
        "lakefs_gc.cli.main().",
    )
    messages_bucket: str = Field(
        min_length=1,
        description="S3 bucket through which Dagster and a job exchange messages, below random prefixes. Add a "
        "lifecycle rule that expires old messages.",
    )
    region: str = Field(
        default="", description="AWS region in which the jobs run. Empty: the region of AWS's standard configuration."
    )
    poll_seconds: float = Field(
        default=15.0,
        gt=0,
        description="Seconds between two queries of a job's state. A smaller value notices the end of a job earlier, "
        "and makes more requests to EMR, which limits their rate.",
    )
    request: dict[str, Any] = Field(
        default_factory=dict,
        description="The other fields of the EMR request (RunJobFlow for emr, StartJobRun for emr-serverless), under "
        "the names that AWS uses: roles, release and instances, or application, and logs. Steps and jobDriver are "
        "generated and cannot be set. No secrets: write EMR.secret@<name or ARN> instead.",
    )

    @field_validator("request")
    @classmethod
    def _no_secrets(cls, request: dict[str, Any]) -> dict[str, Any]:
        """Refuse secrets: Dagster shows settings, and EMR shows the request of a job."""
        for name, value in _texts("request", request):
            if has_credentials(value) or (looks_like_secret(name, value) and not value.startswith(_REFERENCE)):
                raise ValueError(
                    f"{name} looks like a secret, and settings are shown in Dagster. Store it in AWS Secrets Manager, "
                    f"and write {_REFERENCE}<name or ARN>"
                )
        return request

    @model_validator(mode="after")
    def _request_is_complete(self) -> Self:
        missing = [name for name in _REQUIRED[self.kind] if not self.request.get(name)]
        if missing:
            raise ValueError(f"request lacks {' and '.join(missing)}, required by kind = {self.kind!r}")
        if _GENERATED[self.kind] in self.request:
            raise ValueError(
                f"request has {_GENERATED[self.kind]}, which lakefs-gc generates. Put Spark's settings into the table "
                "spark"
            )
        return self

    @model_validator(mode="after")
    def _one_attempt(self) -> Self:
        """Refuse automatic retries, so that a person decides what follows a failed job.

        A second attempt would mark or sweep without a request, and overwrite the report of the first. Batch jobs have
        one attempt by default; streaming jobs are retried whatever ``retryPolicy`` says.
        """
        if self.kind == "emr-serverless":
            policy = self.request.get("retryPolicy", {})
            if not isinstance(policy, dict) or policy.get("maxAttempts", 1) != 1:
                raise ValueError(
                    f"request has retryPolicy = {policy}, which would run a failed job again. Remove it, and start the "
                    "run again in Dagster"
                )
            if self.request.get("mode", "BATCH") != "BATCH":
                raise ValueError("request has a mode other than BATCH, in which a failed job is run again. Remove it")
        return self


def _texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield each string in a nested value, with the name of its field."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(str(key), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(name, inner)
