"""The Pipes clients of ``dagster-aws`` for EMR, with corrections, and the requests that they send.

A job's name contains the repository. So a job that still runs after its Dagster process ended is found (rule 10).
"""

from __future__ import annotations

import copy
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from dagster import AssetExecutionContext, OpExecutionContext
from dagster._core.pipes.client import PipesClientCompletedInvocation
from dagster._core.pipes.context import PipesMessageHandler, PipesSession
from dagster_aws.pipes import PipesEMRClient, PipesEMRServerlessClient, PipesS3ContextInjector, PipesS3MessageReader
from dagster_pipes import PipesParams

from lakefs_gc.config import Settings
from lakefs_gc.config.emr import EMRSettings
from lakefs_gc.errors import ConfigurationError, RemoteJobError, RunInProgressError

Context = OpExecutionContext | AssetExecutionContext

_PYTHON = "spark.pyspark.python"
_DRIVER_ENVIRONMENT = {"emr": "spark.yarn.appMasterEnv", "emr-serverless": "spark.emr-serverless.driverEnv"}
# YARN restarts a failed driver. That would repeat a refused mark or an unfinished sweep, and overwrite the reports of
# the first attempt. So this setting overrides the user's.
_ONE_ATTEMPT = {"spark.yarn.maxAppAttempts": "1"}
_MESSAGES_SECONDS = 5
_UNFINISHED_CLUSTER = ("STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING", "TERMINATING")
_UNFINISHED_JOB = ("SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING", "CANCELLING")
_READ_LOG = "read the job's log in EMR (request.LogUri, or the application's monitoring), then run this again"


class MessageReader(PipesS3MessageReader):
    """Keeps the reports of a job, which the clients discard when the job fails."""

    handler: PipesMessageHandler | None = None

    @contextmanager
    def read_messages(self, handler: PipesMessageHandler) -> Iterator[PipesParams]:
        self.handler = handler
        with super().read_messages(handler) as params:
            yield params


class EMRClient(PipesEMRClient):
    """Runs each job on its own cluster.

    The client of ``dagster-aws`` stops waiting after half an hour, ignores a failed step, drops the Pipes variables if
    the request has its own ``spark-defaults``, and fails if S3 contains no application logs.
    """

    poll_seconds = 15.0

    def _enrich_params(self, session: PipesSession, params: Any) -> Any:
        params = super()._enrich_params(session, params)
        [defaults] = [c for c in params["Configurations"] if c["Classification"] == "spark-defaults"]
        prefix = _DRIVER_ENVIRONMENT["emr"]
        variables = {f"{prefix}.{name}": value for name, value in session.get_bootstrap_env_vars().items()}
        defaults["Properties"] = {**defaults.get("Properties", {}), **variables}
        return params

    def _wait_for_completion(self, context: Context, response: Any) -> Any:
        cluster_id = response["JobFlowId"]
        while True:
            answer = self.client.describe_cluster(ClusterId=cluster_id)
            status = answer["Cluster"]["Status"]
            if status["State"] in ("TERMINATED", "TERMINATED_WITH_ERRORS"):
                break
            time.sleep(self.poll_seconds)
        steps = self.client.list_steps(ClusterId=cluster_id)["Steps"]
        unfinished = [step for step in steps if step["Status"]["State"] != "COMPLETED"]
        if unfinished or not steps:
            state = unfinished[0]["Status"]["State"] if unfinished else "without a step"
            reason = status.get("StateChangeReason", {}).get("Message", "")
            raise _failed(f"the step on EMR cluster {cluster_id}", state, reason)
        return answer

    def _add_log_readers(self, context: Context, response: Any) -> None:
        """Do nothing: Pipes messages carry the log of the stages."""

    def _read_application_logs(self, context: Context, session: PipesSession, response: Any) -> None:
        """Do nothing: Pipes messages carry the log of the stages."""


class EMRServerlessClient(PipesEMRServerlessClient):
    """Runs jobs of an EMR Serverless application.

    The client of ``dagster-aws`` logs the URL of the job's dashboard, which contains a token.
    """

    def _wait_for_completion(self, context: Context, start_response: Any) -> Any:
        application_id, job_run_id = start_response["applicationId"], start_response["jobRunId"]
        while True:
            answer = self.client.get_job_run(applicationId=application_id, jobRunId=job_run_id)
            state = answer["jobRun"]["state"]
            if state == "SUCCESS":
                return answer
            if state not in _UNFINISHED_JOB:
                name = f"job {job_run_id} of EMR Serverless application {application_id}"
                raise _failed(name, state, answer["jobRun"].get("stateDetails") or "")
            time.sleep(self.poll_interval)

    def _read_messages(self, context: Context, session: PipesSession, response: Any) -> None:
        """Do nothing: the original reads CloudWatch, and warns about any other reader."""


def _failed(job: str, state: str, reason: str) -> RemoteJobError:
    return RemoteJobError(f"{job} ended {state}{f': {reason}' if reason else ''}", remedy=_READ_LOG, state=state)


class RemoteJobs:
    """Starts jobs on EMR according to the settings."""

    def __init__(self, settings: Settings, emr: EMRSettings) -> None:
        self._settings, self._emr = settings, emr
        region = emr.region or None
        self._aws: Any = boto3.client(emr.kind, region_name=region)
        s3: Any = boto3.client("s3", region_name=region)
        self.reader = MessageReader(interval=_MESSAGES_SECONDS, bucket=emr.messages_bucket, client=s3)
        common: dict[str, Any] = {
            "client": self._aws,
            "message_reader": self.reader,
            "context_injector": PipesS3ContextInjector(bucket=emr.messages_bucket, client=s3),
        }
        self._client: EMRClient | EMRServerlessClient
        if emr.kind == "emr":
            self._client = EMRClient(**common)
            self._client.poll_seconds = emr.poll_seconds
        else:
            self._client = EMRServerlessClient(**common, poll_interval=emr.poll_seconds)

    def run(
        self, context: AssetExecutionContext, job: str, repository: str, config: Mapping[str, Any]
    ) -> PipesClientCompletedInvocation:
        """Run a job, and wait until it ends.

        Raises ``RunInProgressError`` if another job of the repository is running, ``ConfigurationError`` for an invalid
        request, and ``RemoteJobError`` if AWS refuses a call or the job fails.
        """
        shared = self._settings.model_dump(mode="json", exclude_unset=True, exclude={"emr", "spark"})
        extras = {"settings": shared, "config": dict(config)}
        try:
            self._refuse_second_job(repository)
            if isinstance(self._client, EMRClient):
                request: Any = emr_request(self._settings, self._emr, job, repository)
                return self._client.run(context=context, run_job_flow_params=request, extras=extras)
            request = emr_serverless_request(self._settings, self._emr, job, repository)
            return self._client.run(context=context, start_job_run_params=request, extras=extras)
        except ParamValidationError as error:
            raise ConfigurationError(
                f"emr.request is invalid: {error}", remedy="correct it. Its names are those of AWS's API"
            ) from error
        except (ClientError, BotoCoreError) as error:
            raise RemoteJobError(
                f"AWS failed a call: {error}",
                remedy="check the credentials, the region and the permissions of this machine. A job that was started "
                "may still be running",
            ) from error

    def _refuse_second_job(self, repository: str) -> None:
        name = _name(self._emr, repository)
        if self._emr.kind == "emr":
            pages = self._aws.get_paginator("list_clusters").paginate(ClusterStates=list(_UNFINISHED_CLUSTER))
            running = [cluster["Id"] for page in pages for cluster in page["Clusters"] if cluster["Name"] == name]
            remedy = "wait until it ends, or terminate the cluster"
        else:
            application_id = self._emr.request["applicationId"]
            pages = self._aws.get_paginator("list_job_runs").paginate(
                applicationId=application_id, states=list(_UNFINISHED_JOB)
            )
            running = [job_run["id"] for page in pages for job_run in page["jobRuns"] if job_run.get("name") == name]
            remedy = "wait until it ends, or cancel the job run"
        if running:
            raise RunInProgressError(
                f"{running[0]} on EMR, {name!r}, is still running", remedy=f"{remedy}, then start this run again"
            )


def _name(emr: EMRSettings, repository: str) -> str:
    prefix = emr.request.get("Name" if emr.kind == "emr" else "name") or "lakefs-gc"
    return f"{prefix} {repository}"


def _spark_conf(settings: Settings, emr: EMRSettings) -> list[str]:
    """Return options of spark-submit: the settings ``spark``, a single attempt, and the archive's Python."""
    on_yarn = emr.kind == "emr"
    conf = {"spark.submit.deployMode": "cluster"} if on_yarn else {}
    if python := settings.spark.get(_PYTHON):
        driver = _DRIVER_ENVIRONMENT[emr.kind]
        variables = [f"{driver}.PYSPARK_PYTHON", "spark.executorEnv.PYSPARK_PYTHON", f"{driver}.PYSPARK_DRIVER_PYTHON"]
        conf |= dict.fromkeys(variables, python)
    conf |= settings.spark | (_ONE_ATTEMPT if on_yarn else {})
    return [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]


def emr_request(settings: Settings, emr: EMRSettings, job: str, repository: str) -> dict[str, Any]:
    """Return the request ``RunJobFlow`` for a cluster that runs one step and ends with it."""
    request = copy.deepcopy(emr.request)
    command = ["spark-submit", *_spark_conf(settings, emr), emr.entry_point, "job", job]
    return request | {
        "Name": _name(emr, repository),
        "Instances": request["Instances"] | {"KeepJobFlowAliveWhenNoSteps": False},
        "Applications": request.get("Applications", [{"Name": "Spark"}]),
        "Steps": [
            {
                "Name": job,
                "ActionOnFailure": "TERMINATE_CLUSTER",
                "HadoopJarStep": {"Jar": "command-runner.jar", "Args": command},
            }
        ],
    }


def emr_serverless_request(settings: Settings, emr: EMRSettings, job: str, repository: str) -> dict[str, Any]:
    """Return the request ``StartJobRun`` of an application."""
    driver = {
        "entryPoint": emr.entry_point,
        "entryPointArguments": ["job", job],
        "sparkSubmitParameters": shlex.join(_spark_conf(settings, emr)),
    }
    return copy.deepcopy(emr.request) | {"name": _name(emr, repository), "jobDriver": {"sparkSubmit": driver}}
