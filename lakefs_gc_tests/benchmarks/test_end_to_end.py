"""The repository of the benchmark of a whole mark has its shape, and the mark finds its garbage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.benchmarks.end_to_end import marked, shape_of
from lakefs_gc_tests.benchmarks.generated_keys import write_key_file
from lakefs_gc_tests.benchmarks.generated_repository import GeneratedRepository, sandbox_process, write_repository
from lakefs_gc_tests.benchmarks.generator import Shape
from lakefs_gc_tests.benchmarks.harness import in_fresh_process
from lakefs_gc_tests.benchmarks.simulated_store import SimulatedStore

OBJECTS, COMMITS, BRANCHES = 61_000, 40, 7
STALE = 3_950
"""The stale objects that ranges of 2,000 entries leave of a tenth, without the staged half."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> GeneratedRepository:
    return write_repository(tmp_path_factory.mktemp("generated"), shape_of(OBJECTS, COMMITS), BRANCHES)


@pytest.fixture
def simulated(repository: GeneratedRepository) -> Iterator[SimulatedStore]:
    with repository.store(0) as store, store.environment():
        yield store


def test_the_store_lists_the_objects_of_the_namespace(
    repository: GeneratedRepository, simulated: SimulatedStore
) -> None:
    expected = [name for batch in repository.namespace.objects() for name in batch["address"].to_pylist()]
    listed = [name for batch in open_store(simulated.location).list("data/") for name in batch["address"].to_pylist()]
    assert len(expected) == OBJECTS
    assert listed == sorted(expected)
    slices = open_store(simulated.location).list_level("data/")[0]
    assert slices == sorted({name[: name.rindex("/") + 1] for name in expected})
    assert [len([n for n in listed if n.startswith(s)]) for s in slices] == [11_000, 50_000]


def test_the_store_has_the_files_of_the_namespace(repository: GeneratedRepository, simulated: SimulatedStore) -> None:
    folder = repository.namespace.folder
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    store = open_store(simulated.location)
    assert [name for batch in store.list("_lakefs/") for name in batch["address"].to_pylist()] == files
    assert store.read(files[0]) == (folder / files[0]).read_bytes()
    store.put(files[0], b"new")
    assert store.read(files[0]) == b"new"
    assert store.stat_many([files[0]])[files[0]].size_bytes == 3


def test_object_numbers_with_gaps_cannot_become_a_key_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="turnover"):
        write_key_file(tmp_path / "keys", Shape(turnover=2))


@pytest.mark.of_ci
def test_a_mark_lists_exactly_the_stale_objects(
    repository: GeneratedRepository, simulated: SimulatedStore, tmp_path: Path
) -> None:
    with sandbox_process(repository.state) as (credentials, pid):
        figures = in_fresh_process(marked, tmp_path, credentials, pid, "1g")
    assert (figures["listed"], figures["marked"]) == (OBJECTS, STALE)
    assert float(figures["store_listing_s"]) > 0
    assert float(figures["server_cpu_s"]) > 0
