"""A run has clients of one server, of its own, in its process and in Spark's workers."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import nullcontext
from typing import Any

import pytest

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage import endpoints
from lakefs_gc.storage.endpoints import (
    S3,
    begin_clients,
    check_endpoint,
    continue_clients,
    endpoints_for_workers,
    following,
    refuse_move,
    state_endpoints,
    whose_clients,
)

OURS, OTHER = "http://s3.example.com:9000", "http://clone.example.com:9000"


@pytest.fixture(autouse=True)
def _a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "_here", {})
    monkeypatch.setattr(endpoints, "_for_workers", {})
    monkeypatch.setattr(endpoints, "_of_run", None)
    monkeypatch.setattr(endpoints, "_clients", endpoints._Clients())


def test_a_worker_uses_the_endpoint_of_the_run() -> None:
    check_endpoint(S3, f"{OURS}/")
    with following(endpoints_for_workers()):
        check_endpoint(S3, OURS.upper().replace("HTTP", "http"))
        with pytest.raises(
            ConfigurationError, match=r"to http://clone\.example\.com:9000, and .* to http://s3\.example"
        ):
            check_endpoint(S3, OTHER)
    check_endpoint(S3, OTHER)


def test_a_service_that_the_run_has_not_used_is_refused() -> None:
    check_endpoint("account.blob.core.windows.net", "https://account.blob.core.windows.net")
    with following(endpoints_for_workers()), pytest.raises(ConfigurationError, match="to no server"):
        check_endpoint(S3, OURS)


def test_a_worker_follows_each_run() -> None:
    of_no_run = whose_clients()
    with following({S3: OURS}):
        ours = whose_clients()
        with pytest.raises(ConfigurationError):
            check_endpoint(S3, OTHER)
    with following({S3: OTHER}):
        check_endpoint(S3, OTHER)
        assert whose_clients() not in (of_no_run, ours), "clients of before are of another server"


def test_a_task_that_ends_late_does_not_end_the_next_one() -> None:
    """Python closes the generator of a task that failed when it removes the error that refers to it."""

    def task(endpoint: str) -> Generator[None]:
        with following({S3: endpoint}):
            yield

    failed, following_one = task(OURS), task(OURS)
    next(failed)
    next(following_one)
    failed.close()
    with pytest.raises(ConfigurationError):
        check_endpoint(S3, OTHER)
    following_one.close()
    with following({S3: OTHER}):
        check_endpoint(S3, OTHER)


def test_each_run_has_clients_of_its_own() -> None:
    """Also in the workers of its tasks, which may stay."""
    check_endpoint(S3, OURS)
    found = []
    for run_key in ("lake/1", "lake/2", "lake/2"):
        begin_clients(run_key)
        with following(endpoints_for_workers()):
            found += [whose_clients()]
        found += [whose_clients()]
        continue_clients(run_key)
        assert whose_clients() == found[-1]
    assert len({*found}) == 6


def test_a_run_that_another_process_began_has_clients_of_its_own() -> None:
    begin_clients("lake/1")
    before = whose_clients()
    continue_clients("lake/2")
    assert whose_clients() != before


def test_a_run_has_one_endpoint() -> None:
    begin_clients("lake/1")
    check_endpoint(S3, OURS)
    check_endpoint("Google Cloud Storage", OTHER)
    refuse_move()
    check_endpoint(S3, OTHER)
    check_endpoint(S3, OURS)
    message = f"This run began to send the requests about S3 to {OURS}, and now to {OTHER}"
    with pytest.raises(ConfigurationError, match=message):
        refuse_move()
    continue_clients("lake/1")
    with pytest.raises(ConfigurationError, match=message):
        refuse_move()
    begin_clients("lake/1")
    check_endpoint(S3, OTHER)
    refuse_move()


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("https://s3.amazonaws.com", "https://s3.eu-west-1.amazonaws.com", True),
        ("https://s3.us-east-1.amazonaws.com", "https://bucket.vpce-1a2b.s3.us-east-1.vpce.amazonaws.com", True),
        ("https://s3.us-east-1.amazonaws.com", "https://s3.us-gov-west-1.amazonaws.com", False),
        ("https://s3.us-east-1.amazonaws.com", "https://s3.cn-north-1.amazonaws.com.cn", False),
        ("https://s3.us-east-1.amazonaws.com", "https://s3.amazonaws.com.example.com", False),
        ("https://s3.us-east-1.amazonaws.com", "https://s3-fips.dualstack.us-east-1.amazonaws.com:443/", True),
        (
            "https://s3-accelerate.amazonaws.com",
            "https://name-123456789012.s3-accesspoint.us-east-1.amazonaws.com",
            True,
        ),
        ("https://s3.us-east-1.amazonaws.com", "http://ec2-1-2-3-4.compute-1.amazonaws.com", False),
        ("http://one.elb.us-east-1.amazonaws.com", "http://other.elb.us-east-1.amazonaws.com", False),
        ("http://s3-one.elb.us-east-1.amazonaws.com", "http://s3-other.elb.us-east-1.amazonaws.com", False),
        ("https://s3.us-east-1.amazonaws.com", "https://s3.us-east-1.amazonaws.com:9000", False),
        ("http://example.com", "http://example.com:80", True),
        (OURS, "http://s3.example.com:9001", False),
        (OURS, "https://s3.example.com:9000", False),
        ("http://example.com/s3", "http://example.com/s3/", True),
    ],
)
def test_the_endpoints_of_aws_lead_to_one_place(one: str, other: str, is_same: bool) -> None:
    check_endpoint(S3, one)
    refused: Any = nullcontext() if is_same else pytest.raises(ConfigurationError)
    with following(endpoints_for_workers()), refused:
        check_endpoint(S3, other)


def test_a_user_states_another_name_for_workers() -> None:
    check_endpoint(S3, OURS)
    state_endpoints({"spark.executorEnv.AWS_ENDPOINT_URL": OURS, "spark.executorEnv.AWS_ENDPOINT_URL_S3": OTHER})
    with following(endpoints_for_workers()):
        check_endpoint(S3, OTHER)
        with pytest.raises(ConfigurationError):
            check_endpoint(S3, OURS)


def test_what_was_stated_for_an_earlier_session_is_forgotten() -> None:
    check_endpoint(S3, OURS)
    state_endpoints({"spark.executorEnv.AWS_ENDPOINT_URL_S3": OTHER})
    state_endpoints({"spark.executorEnv.AWS_ENDPOINT_URL_S3": ""})
    assert endpoints_for_workers() == {S3: OURS}
