"""Records are read strictly, and a file of a newer lakefs-gc is reported as such."""

from __future__ import annotations

import json
import pickle
from dataclasses import field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from lakefs_gc.errors import CorruptFileError, LakeFSGCError, MarkError
from lakefs_gc.formats.durable_record import DurableRecord, SealedRecord, Time, record

NOW = datetime(2026, 7, 1, 12, 0, 0, 5, UTC)


@record
class Part:
    key: str
    objects: int = 0


@record
class Sample(DurableRecord):
    """Version 1 did not name its version, and version 2 called it ``format_version``."""

    kind = "a sample"
    current_version = 3
    version_keys = MappingProxyType({1: None, 2: "format_version"})
    remedy = "Take another sample"

    name: str
    at: Time
    parts: tuple[Part, ...]
    facts: dict[str, Any] = field(default_factory=dict)
    schema_version: int = field(default=3, kw_only=True)

    @classmethod
    def upgrade(cls, content: dict[str, Any], version: int, file: str) -> dict[str, Any]:
        return content if version > 1 else content | {"name": content["title"].upper(), "facts": {}}


@record
class Sealed(SealedRecord):
    kind = "a sealed sample"
    name: str

    @classmethod
    def changed(cls, file: str) -> LakeFSGCError:
        return MarkError(f"{file} was changed")


SAMPLE = Sample("one", NOW, (Part("a", 1), Part("b", 2)), {"share": 0.5, "list": [1, None]})
CONTENT: dict[str, Any] = json.loads(SAMPLE.to_json())


def read(content: dict[str, Any]) -> Sample:
    return Sample.from_json(json.dumps(content).encode(), "sample.json")


def test_a_record_is_read_as_it_was_written() -> None:
    assert Sample.from_json(SAMPLE.to_json(), "sample.json") == SAMPLE == pickle.loads(pickle.dumps(SAMPLE))
    assert CONTENT["at"] == NOW.isoformat()
    assert CONTENT["schema_version"] == 3
    assert SAMPLE.to_json() == json.dumps(CONTENT, indent=2, sort_keys=True).encode()


@pytest.mark.parametrize("name", sorted(CONTENT.keys() - {"schema_version"}))
def test_no_field_of_a_file_has_a_default(name: str) -> None:
    with pytest.raises(CorruptFileError, match=f"^sample.json: not a sample: field '{name}'.* is missing") as refused:
        read({key: value for key, value in CONTENT.items() if key != name})
    assert refused.value.remedy == "Take another sample"


def test_nor_has_a_field_inside_another() -> None:
    with pytest.raises(CorruptFileError, match="field 'parts' is missing or incomplete"):
        read(CONTENT | {"parts": [{"key": "a"}]})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": 7}, "field 'name': Input should be a valid string"),
        ({"at": "yesterday"}, "field 'at': .*Invalid isoformat string: 'yesterday'"),
        ({"at": "2026-07-01T12:00:00"}, "field 'at': Input should have timezone info"),
        ({"at": 1782907200}, "field 'at'"),
        ({"parts": [{"key": "a", "objects": True}]}, "field 'parts.0.objects': Input should be a valid integer"),
        ({"parts": [{"key": "a", "objects": "1"}]}, "field 'parts.0.objects'"),
        ({"parts": [{"key": "a", "objects": 1, "more": 1}]}, "unknown field 'parts.0.more'"),
        ({"parts": None}, "field 'parts'"),
        ({"more": 1}, "unknown field 'more'"),
        ({"schema_version": True}, "field 'schema_version' is True, not a whole number"),
        ({"schema_version": "3"}, "field 'schema_version' is '3', not a whole number"),
        ({"schema_version": 2}, "field 'format_version' of its schema version is missing or misplaced"),
        ({"format_version": 2}, "field 'schema_version' of its schema version is missing or misplaced"),
    ],
)
def test_what_is_not_a_record(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(CorruptFileError, match=f"^sample.json: not a sample: {problem}"):
        read(CONTENT | change)


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b'{"name": NaN}', b"\xff"])
def test_what_is_not_a_json_object(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"^sample\.json: not a sample: "):
        Sample.from_json(data, "sample.json")


def test_a_newer_version_is_named_before_anything_else() -> None:
    """Its fields have other names and types: none of them is the problem."""
    with pytest.raises(CorruptFileError, match=r"by a newer lakefs-gc: schema version 4, .* up to 3") as refused:
        read({"schema_version": 4, "of_tomorrow": []})
    assert refused.value.remedy == "Upgrade lakefs-gc"


def test_earlier_versions_are_upgraded_and_not_written_again() -> None:
    fields = {key: value for key, value in CONTENT.items() if key != "schema_version"}
    second = read(fields | {"format_version": 2})
    assert (second.schema_version, second.name) == (2, "one")
    with pytest.raises(ValueError, match="schema version 2 cannot be written"):
        second.to_json()
    with pytest.raises(CorruptFileError, match="not a sample: KeyError: 'title'"):
        read(fields)
    with pytest.raises(CorruptFileError, match="unknown field 'title'"):
        read(fields | {"title": "one"})


def test_a_seal_covers_every_byte() -> None:
    sealed = Sealed("one").sealed()
    data = sealed.to_json()
    assert Sealed.from_json(data, "f") == sealed
    for other in (data + b"\n", data.replace(b"one", b"two"), json.dumps(json.loads(data)).encode()):
        with pytest.raises(MarkError, match="f was changed"):
            Sealed.from_json(other, "f")
    with pytest.raises(MarkError, match="f was changed"):
        Sealed.from_json(Sealed("one").to_json(), "f")
