"""One recorded run for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc_tests.support.recorded_run import RecordedRun, record_run


@pytest.fixture(scope="package")
def recorded_run(
    s3_server: SeaweedFS, spark_config: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RecordedRun]:
    """The results of one run through the command line and the assets."""
    with record_run(s3_server, spark_config, tmp_path_factory.mktemp("secrets")) as recorded:
        yield recorded
