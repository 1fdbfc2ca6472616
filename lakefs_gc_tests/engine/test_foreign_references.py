"""Objects of this namespace that other repositories refer to by full address (rule 5)."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.errors import CorruptRangeError
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.server import LakeFSServer
from lakefs_gc_tests.collector import Collector, Lake, LakeRepository
from lakefs_gc_tests.lakefs_proxy import Answered, Asked, LakeFSProxy


def test_an_object_that_another_repository_imported_is_kept(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    imported, garbage = repository.put("x"), repository.put("y")
    repository.delete("x")
    repository.delete("y")
    other, similar = lake.repository("other"), lake.repository("lake-2")
    other.stage("imported", f"local://lake/{imported}")
    other.put("own")
    other.stage("not/ours", f"local://lake-2/{garbage}")  # the same key in a place whose name begins alike
    other.commit()
    other.put_stray("_lakefs/" + "0" * 63)  # no id: not read
    similar.put("z")
    similar.commit()
    collector = Collector(spark, repository)
    collector.collect()
    rows = collector.dataset("foreign_references").dataframe.collect()
    assert [(row["address"], row["repository"]) for row in rows] == [(imported, "other")]
    facts = collector.manifest("foreign_references").facts
    assert (facts["checked"], facts["unreadable"], facts["switched_off"]) == (2, {}, False)
    assert collector.addresses("candidates") == {garbage}

    unsafe = Collector(spark, repository, safety=SafetyParameters(check_foreign_references=False))
    unsafe.run_key = collector.run_key
    unsafe.materialize("foreign_references", "unmatched", "kept", "candidates")
    assert unsafe.manifest("foreign_references").facts["switched_off"] is True
    assert unsafe.addresses("candidates") == {imported, garbage}


def test_a_repository_that_cannot_be_read_is_reported(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    for name in ("gone", "elsewhere", "unknown-store", "fine"):
        lake.repository(name)
    places = {"gone": "local://nowhere", "elsewhere": "mem://x", "unknown-store": "gs://bucket/x"}

    def move(asked: Asked, answer: Answered) -> Answered:
        results = [
            r | {"storage_namespace": places.get(r["id"], r["storage_namespace"])} for r in answer.json["results"]
        ]
        return answer.with_json(results=results)

    proxy.instead("/repositories", move)
    server = LakeFSServer(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    collector = Collector(spark, repository, server=server)
    collector.collect()
    facts = collector.manifest("foreign_references").facts
    assert facts["checked"] == 1
    assert facts["unreadable"].keys() == places.keys()
    assert "nowhere" in facts["unreadable"]["gone"]
    assert "Google Cloud Storage" in facts["unreadable"]["unknown-store"]


def test_a_damaged_range_of_another_repository_fails_the_run(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    other = lake.repository("other")
    other.put("x")
    metarange = other.metadata_file(other.metarange_of(other.commit()))
    [range_id] = read_metarange(other.store.read(metarange), metarange).column("range_id").to_pylist()
    file = other.metadata_file(range_id)
    other.store.put(file, other.store.read(file)[:-1])
    collector = Collector(spark, repository)
    collector.materialize("store_listing")
    with pytest.raises(CorruptRangeError, match=f"lake/objects/other/{file}"):
        collector.materialize("foreign_references")
