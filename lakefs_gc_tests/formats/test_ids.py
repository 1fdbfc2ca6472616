"""Ids of objects, slices and runs."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.ids import is_slice_id, new_reversed_id, new_xid, reversed_id_time, xid_time
from lakefs_gc_tests.golden import golden_file, scenarios

NOW = datetime(2026, 11, 21, 3, 16, 3, 999_999, tzinfo=UTC)
DATA_SCENARIOS = [name for name in scenarios() if b'"data/' in golden_file(name, "listing.jsonl")]


def written_objects(name: str) -> list[tuple[str, str, datetime]]:
    """Slice, object id and last-modified time of each object whose address the server made and used at
    once.
    """
    objects = []
    for line in golden_file(name, "listing.jsonl").splitlines():
        row = json.loads(line)
        parts = row["key"].split("/")
        if parts[0] == "data" and len(parts) == 3 and is_slice_id(parts[1]) and is_slice_id(parts[2]):
            objects.append((parts[1], parts[2], datetime.fromisoformat(row["last_modified"])))
    return objects


@pytest.mark.parametrize("name", DATA_SCENARIOS)
def test_ids_of_a_real_server_contain_their_time(name: str) -> None:
    objects = written_objects(name)
    assert objects
    for slice_id, object_id, last_modified in objects:
        assert abs(last_modified - xid_time(object_id)) < timedelta(minutes=1)
        assert timedelta(seconds=-2) < xid_time(object_id) - reversed_id_time(slice_id) < timedelta(hours=1)


def test_new_ids_contain_the_time_to_the_second() -> None:
    second = NOW.replace(microsecond=0)
    assert xid_time(new_xid(NOW)) == second
    assert reversed_id_time(new_reversed_id(NOW)) == second


def test_new_ids_have_the_form_of_the_servers() -> None:
    for new in (new_xid(NOW), new_reversed_id(NOW)):
        assert len(new) == 20
        assert is_slice_id(new)


def test_reversed_ids_sort_newest_first() -> None:
    moments = [NOW + timedelta(seconds=seconds) for seconds in (0, 1, 3600, 86400 * 400)]
    assert sorted(moments, key=new_reversed_id, reverse=True) == moments
    assert sorted(moments, key=new_xid) == moments


def test_new_ids_do_not_repeat() -> None:
    assert len({new_xid(NOW) for _ in range(10_000)}) == 10_000


def test_a_forked_process_generates_other_ids() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, new_xid(NOW).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 20).decode() != new_xid(NOW)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "ft6vmg1ksdue9brs39a",
        "ft6vmg1ksdue9brs39a00",
        "FT6VMG1KSDUE9BRS39A0",
        "ft6vmg1ksdue9brs39a1",  # bits beyond the twelve bytes
        "ft6vmg1ksdue9brs39w0",
        "ft6vmg1ksdue9brs39 0",
        "ft6vmg1ksdue9brs39é0",
    ],
)
def test_other_names_are_not_ids(name: str) -> None:
    assert not is_slice_id(name)
    with pytest.raises(ConfigurationError, match="is not an xid"):
        xid_time(name)
