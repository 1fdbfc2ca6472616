"""Makes sure that Spark's workers send requests to the same servers as the process of the run.

The name of a bucket does not say which server has it. A worker takes the endpoint from its own environment, which may
be that of another machine, or of the process that once started a Spark that stays. A copy of an installation has the
same buckets, namespaces and objects: so workers with the endpoint of the original would delete its live objects, by the
references of the copy.

The clients of a process note their endpoints here. Spark's tasks carry those of the process of the run, and a worker
creates no client with another one.

A process may go on for days (a notebook, a service), and the files that name an endpoint may change. So each run opens
its stores anew (``begin_clients``), and no run goes on once its process has sent requests to another endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from uuid import uuid4

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

_RUN = "run"
"""What tasks name the run by whose clients they use: no service has this name."""

_here: dict[str, str] = {}
_for_workers: dict[str, str] = {}
_of_run: dict[str, str] | None = None


@dataclass
class _Clients:
    """The run whose clients this process creates. ``moved`` says which service had another endpoint before."""

    run_key: str = ""
    name: str = ""
    first: dict[str, str] = field(default_factory=dict)
    moved: str = ""


_clients = _Clients()


def begin_clients(run_key: str) -> None:
    """Let this process, and the workers of its tasks, use no client of an earlier run from now on.

    The files with endpoints and credentials may have changed since. If a look at references had an old client, and the
    deletes a new one, they could reach different stores.
    """
    global _clients
    _clients = _Clients(run_key, uuid4().hex)


def continue_clients(run_key: str) -> None:
    """Like ``begin_clients``, unless that run is the one that this process has begun or continued last."""
    if _clients.run_key != run_key:
        begin_clients(run_key)


def refuse_move() -> None:
    """Raise ``ConfigurationError`` if this process has sent requests of its run to two endpoints of one service."""
    if _clients.moved:
        raise ConfigurationError(
            f"{_clients.moved}. Both may have buckets and objects of the same names, so what was read from one says "
            "nothing about the other",
            remedy="Find out what changed the endpoint during the run: a variable of this process, or a file like "
            "~/.aws/config. Then start a new run, or sweep again. A new run opens its stores anew",
        )


def endpoints_of_run() -> dict[str, str]:
    """Return the endpoint of each service to which this process has sent requests of its run."""
    return dict(_clients.first)


def check_endpoint(service: str, url: str) -> None:
    """Note that a client of this process sends the requests about a ``service`` to ``url``.

    ``service`` is ``S3``, or another name that is the same in all processes. In a worker, raise ``ConfigurationError``
    if the process of the run sends them elsewhere, or has never sent any.
    """
    place = _place(url)
    if _of_run is None:
        _here[service] = place
        first = _clients.first.setdefault(service, place)
        if first != place:
            _clients.moved = f"This run began to send the requests about {service} to {first}, and now to {place}"
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
    """Return the endpoint of each service that this process has used, as workers should have it, and its run."""
    stated = {service: place for service, place in _for_workers.items() if service in _here}
    return _here | stated | ({_RUN: _clients.name} if _clients.name else {})


@contextmanager
def following(endpoints: Mapping[str, str], *, stays: bool = False) -> Iterator[None]:
    """In a worker, create clients only with the endpoints of the run whose task this is.

    The generator of a task that failed may be closed only later, when the worker already has another task. Threads of
    it may still create clients, so in a process that only has tasks, the endpoints stay (``stays``) until the next one.
    """
    global _of_run
    ours = dict(endpoints)
    before, _of_run = _of_run, ours
    try:
        yield
    finally:
        if _of_run is ours and not stays:
            _of_run = before


def whose_clients() -> frozenset[tuple[str, str]]:
    """Return what a client that is created now is for: no other run has it, nor tasks with other endpoints."""
    return frozenset(({_RUN: _clients.name} if _of_run is None else _of_run).items())


def _place(url: str) -> str:
    """Return what an endpoint leads to. AWS has many, and a bucket is the same at each of them in a partition."""
    parts = urlsplit(url)
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    port = None if parts.port == _DEFAULT_PORTS.get(scheme) else parts.port
    if port is None and _OF_AWS.fullmatch(host):
        return "AWS in China" if host.endswith(".cn") else "AWS GovCloud" if "us-gov-" in host else "AWS"
    return f"{scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
