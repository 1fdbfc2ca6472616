"""Makes sure that Spark's workers send requests to the same servers as the process of the run.

The name of a bucket does not say which server has it. A worker takes the endpoint from its own environment, which may
be that of another machine, or of the process that once started a Spark that stays. A copy of an installation has the
same buckets, namespaces and objects: so workers with the endpoint of the original would delete its live objects, by the
references of the copy.

The clients of a process note their endpoints here. Spark's tasks carry those of the process of the run, and a worker
creates no client with another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from lakefs_gc.errors import ConfigurationError

S3 = "S3"

STATED_FOR_WORKERS = {
    "spark.executorEnv.AWS_ENDPOINT_URL": S3,
    "spark.executorEnv.AWS_ENDPOINT_URL_S3": S3,  # takes precedence
}
"""The settings of Spark in which a user states that workers reach the same store by another name."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_OF_AWS = re.compile(
    r"(?:.*\.)?s3(?:[.-](?:accelerate|accesspoint|dualstack|external-1|fips|vpce|[a-z]{2,3}(?:-[a-z]+)+-\d+))*"
    r"\.amazonaws\.com(?:\.cn)?"
)
"""The hosts of S3 in AWS. Other machines there, with stores of their own, have other names below ``amazonaws.com``."""

_here: dict[str, str] = {}
_for_workers: dict[str, str] = {}
_of_run: dict[str, str] | None = None


def check_endpoint(service: str, url: str) -> None:
    """Note that a client of this process sends the requests about a ``service`` to ``url``.

    ``service`` is ``S3``, or another name that is the same in all processes. In a worker, raise ``ConfigurationError``
    if the process of the run sends them elsewhere, or has never sent any.
    """
    place = _place(url)
    if _of_run is None:
        _here[service] = place
    elif _of_run.get(service) != place:
        raise ConfigurationError(
            f"A worker of Spark sends the requests about {service} to {place}, and the process of the run sends them "
            f"to {_of_run.get(service, 'no server')}. Both may have buckets and objects of the same names",
            remedy="Give the workers the endpoint of the run: stop a Spark that stays on this machine (`python -m "
            "pyspark.sql.connect.local_server --stop`), so that the next run starts one with its own environment; on a "
            "cluster, set the variable of the endpoint for its executors. If both names lead to one S3 store, state "
            'that of the workers below [spark], as "spark.executorEnv.AWS_ENDPOINT_URL_S3"',
        )


def state_endpoints(spark_config: Mapping[str, str]) -> None:
    """Take from the settings of Spark which endpoints workers have that this process reaches by other names."""
    _for_workers.clear()
    _for_workers.update(
        {service: _place(url) for name, service in STATED_FOR_WORKERS.items() if (url := spark_config.get(name))}
    )


def endpoints_for_workers() -> dict[str, str]:
    """Return the endpoint of each service that this process has used, as workers should have it."""
    return _here | {service: place for service, place in _for_workers.items() if service in _here}


@contextmanager
def following(endpoints: Mapping[str, str]) -> Iterator[None]:
    """In a worker, create clients only with the endpoints of the run whose task this is."""
    global _of_run
    before, _of_run = _of_run, dict(endpoints)
    try:
        yield
    finally:
        _of_run = before


def endpoints_of_run() -> frozenset[tuple[str, str]] | None:
    """Return the endpoints that this worker follows: no client of another run's task is one of this. Else None."""
    return None if _of_run is None else frozenset(_of_run.items())


def _place(url: str) -> str:
    """Return what an endpoint leads to. AWS has many, and a bucket is the same at each of them in a partition."""
    parts = urlsplit(url)
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    port = None if parts.port == _DEFAULT_PORTS.get(scheme) else parts.port
    if port is None and _OF_AWS.fullmatch(host):
        return "AWS in China" if host.endswith(".cn") else "AWS GovCloud" if "us-gov-" in host else "AWS"
    return f"{scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
