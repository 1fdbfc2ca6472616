"""EMR, simulated by moto. The jobs, which moto does not run, are run as processes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pyspark
from dagster import ExecuteInProcessResult

from lakefs_gc.config import Settings
from lakefs_gc.engine.spark.java import ensure_java
from lakefs_gc_tests.support.lake import Lake

MESSAGES = "lakefs-gc-messages"


ROLE = "arn:aws:iam::123456789012:role/lakefs-gc"


ENTRY_POINT = "from lakefs_gc.cli import main; main()\n"


SECONDS = 120


@dataclass
class Job:
    """A submitted job: the command, and the environment variables of its driver."""

    command: list[str]
    environment: dict[str, str]
    output: str = ""


@dataclass
class EMR:
    """moto, and a thread that runs the submitted jobs."""

    folder: Path
    application_id: str
    entry_point: Path
    jobs: list[Job] = field(default_factory=list)
    without_java: bool = False
    """Run the entry point by itself: for jobs that end before they would use Spark."""

    def __post_init__(self) -> None:
        from moto.backends import get_backend

        account = "123456789012"
        self._serverless: Any = get_backend("emr-serverless")[account]["us-east-1"]
        self._clusters: Any = get_backend("emr")[account]["us-east-1"]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> EMR:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop running jobs. Jobs that are submitted from now on wait."""
        self._stopped.set()
        self._thread.join(SECONDS)

    @property
    def states(self) -> list[str]:
        """Return the state of each job and of each cluster, except the first job of the fixture."""
        job_runs = [job_run for by_id in self._serverless.job_runs.values() for job_run in by_id]
        return [each.state for each in [*job_runs[1:], *self._clusters.clusters.values()]]

    def settings(self, lake: Lake, kind: str, **request: Any) -> Settings:
        """Return the settings of the lake with jobs on EMR. Spark runs on this machine."""
        serverless = {"applicationId": self.application_id, "executionRoleArn": ROLE}
        cluster = {"ReleaseLabel": "emr-7.9.0", "ServiceRole": ROLE, "JobFlowRole": ROLE, "Instances": INSTANCES}
        return Settings.model_validate(
            lake.settings.model_dump(exclude_unset=True)
            | {
                "spark": SPARK | {"spark.pyspark.python": sys.executable},
                "emr": {
                    "kind": kind,
                    "entry_point": str(self.entry_point),
                    "messages_bucket": MESSAGES,
                    "poll_seconds": 0.5,
                    "request": (cluster if kind == "emr" else serverless) | request,
                },
            }
        )

    def _run(self) -> None:
        while not self._stopped.wait(0.2):
            for job_runs in self._serverless.job_runs.values():
                for job_run in job_runs:
                    if job_run.state == "SUBMITTED":
                        job_run.state = "RUNNING"
                        ended = self._ended(serverless_job(job_run.job_driver["sparkSubmit"]))
                        job_run.state_details = f"exit code {ended}"
                        job_run.state = "FAILED" if ended else "SUCCESS"
            for cluster in list(self._clusters.clusters.values()):
                if cluster.state == "WAITING":  # the state in which moto would run the steps
                    [step] = cluster.steps
                    cluster.state = "RUNNING"
                    ended = self._ended(cluster_job(cluster.id, step.args))
                    step.state = "FAILED" if ended else "COMPLETED"
                    cluster.state = "TERMINATED_WITH_ERRORS" if ended else "TERMINATED"

    def _ended(self, job: Job) -> int:
        """Run a job. Return its exit code."""
        self.jobs.append(job)
        environment = os.environ | job.environment | {"JAVA_HOME": str(ensure_java()), "HOME": str(self.folder)}
        environment["PATH"] = f"{Path(pyspark.__file__).parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
        command = [sys.executable, *job.command[-3:]] if self.without_java else job.command
        ended = subprocess.run(
            command,
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        job.output = ended.stdout + ended.stderr
        return ended.returncode


SPARK = {
    "spark.master": "local[2]",
    "spark.submit.deployMode": "client",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "1",
    "spark.sql.codegen.wholeStage": "false",
    # The process is short: logging and optimized compilation would take longer than the work.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Dlog4j2.level=ERROR",
    "spark.log.level": "ERROR",
}


INSTANCES = {"MasterInstanceType": "m5.xlarge", "InstanceCount": 1}


def serverless_job(spark_submit: dict[str, Any]) -> Job:
    """Return a job as EMR Serverless starts it: the driver gets ``spark.emr-serverless.driverEnv.*``."""
    options = shlex.split(spark_submit["sparkSubmitParameters"])
    prefix = "spark.emr-serverless.driverEnv."
    variables = [option.removeprefix(prefix).partition("=") for option in options if option.startswith(prefix)]
    command = ["spark-submit", *options, spark_submit["entryPoint"], *spark_submit["entryPointArguments"]]
    return Job(command, {name: value for name, _, value in variables})


def cluster_job(cluster_id: str, command: list[str]) -> Job:
    """Return a job as YARN starts it in deploy mode cluster: the driver gets ``spark.yarn.appMasterEnv.*``."""
    described: Any = boto3.client("emr").describe_cluster(ClusterId=cluster_id)["Cluster"]
    prefix = "spark.yarn.appMasterEnv."
    properties = [c["Properties"] for c in described["Configurations"] if c["Classification"] == "spark-defaults"]
    return Job(
        list(command),
        {n.removeprefix(prefix): value for p in properties for n, value in p.items() if n.startswith(prefix)},
    )


def failure(result: ExecuteInProcessResult) -> Any:
    """Return the reason of a failed run as the UI shows it."""
    [event] = [event for event in result.all_events if event.is_step_failure]
    return event.step_failure_data.user_failure_data
