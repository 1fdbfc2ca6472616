"""The names of the assets, ops, jobs and sensors of a code location, with the prefix of an embedded one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dagster import AssetKey, DynamicPartitionsDefinition, PartitionKeyRange

from lakefs_gc.errors import ConfigurationError

POOL = "runs"
"""The pool of an embedded code location, below its prefix. A limit of 1 allows one run at a time."""
_PREFIX = re.compile(r"[A-Za-z0-9_]+")


class _Runs(DynamicPartitionsDefinition):
    """Partitions whose ranges of one partition are not looked up.

    Dagster asks for such a range 103 times in a mark, and whether its partition exists twice each time: 0.4 s.
    """

    def get_partition_keys_in_range(self, partition_key_range: PartitionKeyRange) -> Sequence[str]:
        """Return the partitions from the first to the last one of a range. Raise if one of these does not exist."""
        if partition_key_range.start == partition_key_range.end:
            return [partition_key_range.start]
        return super().get_partition_keys_in_range(partition_key_range)


@dataclass(frozen=True)
class Names:
    """Names below ``prefix``. Without a prefix: those of lakefs-gc's own code location."""

    prefix: tuple[str, ...] = ()

    @classmethod
    def below(cls, prefix: str | Sequence[str]) -> Names:
        """Return the names below a key prefix. Raise ``ConfigurationError`` for one that Dagster does not accept."""
        parts = (prefix,) if isinstance(prefix, str) else tuple(prefix)
        if not parts or not all(_PREFIX.fullmatch(part) for part in parts):
            raise ConfigurationError(
                f"key_prefix is {prefix!r}. A prefix has letters, digits and underscores",
                remedy='set key_prefix to a name, e.g. "lakefs_gc", or to a list of names, e.g. ["lake", "gc"]',
            )
        return cls(parts)

    @classmethod
    def of(cls, key: AssetKey) -> Names:
        """Return the names of the code location that an asset of lakefs-gc belongs to."""
        return cls(tuple(key.path[:-1]))

    @property
    def runs(self) -> DynamicPartitionsDefinition:
        """Return the partitions of every asset: ``<repository>/<run>``."""
        return _Runs(name=self.name("gc_runs"))

    def name(self, name: str) -> str:
        """Return the name of an op, job, schedule, sensor, group or resource. An op is named after its asset."""
        return "__".join((*self.prefix, name))

    def key(self, asset: str) -> AssetKey:
        """Return the key of an asset."""
        return AssetKey([*self.prefix, asset])


OWN = Names()
"""The names of lakefs-gc's own code location."""
