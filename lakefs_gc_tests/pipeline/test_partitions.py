"""The partitions of the assets."""

from __future__ import annotations

import pytest
from dagster import DagsterInstance, PartitionKeyRange, instance_for_test
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.errors import DagsterInvalidInvocationError

from lakefs_gc.pipeline.partitions import gc_runs


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The partitions of which somebody asked whether they exist."""
    keys, has = list[str](), DagsterInstance.has_dynamic_partition

    def has_partition(instance: DagsterInstance, partitions_def_name: str, partition_key: str) -> bool:
        keys.append(partition_key)
        return has(instance, partitions_def_name, partition_key)

    monkeypatch.setattr(DagsterInstance, "has_dynamic_partition", has_partition)
    return keys


def test_a_range_of_one_run_is_not_looked_up(asked: list[str]) -> None:
    with instance_for_test() as instance, partition_loading_context(dynamic_partitions_store=instance):
        assert gc_runs.get_partition_keys_in_range(PartitionKeyRange("lake/1", "lake/1")) == ["lake/1"]
        assert asked == []


def test_the_runs_of_other_ranges_must_exist(asked: list[str]) -> None:
    with instance_for_test() as instance, partition_loading_context(dynamic_partitions_store=instance):
        instance.add_dynamic_partitions(str(gc_runs.name), ["lake/1", "lake/2", "lake/3"])
        both = PartitionKeyRange("lake/1", "lake/2")
        assert list(gc_runs.get_partition_keys_in_range(both)) == ["lake/1", "lake/2"]
        with pytest.raises(DagsterInvalidInvocationError):
            gc_runs.get_partition_keys_in_range(PartitionKeyRange("lake/1", "lake/9"))
        assert asked == ["lake/1", "lake/2", "lake/1", "lake/9"]
