"""A repository with live data, and garbage that each run must find."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.collector import Collector, counts, marked
from lakefs_gc_tests.support.lake import LakeRepository


@dataclass
class Scene:
    """A repository with live data, and garbage that each run must find."""

    repository: LakeRepository
    live: dict[str, bytes] = field(default_factory=dict)
    min_age_seconds: float = 0.0
    """The minimum age, for a store whose objects cannot be made to look old; the default one if 0."""

    @classmethod
    def of(cls, repository: LakeRepository, min_age_seconds: float = 0.0) -> Scene:
        scene = cls(repository, min_age_seconds=min_age_seconds)
        for path in ("a", "dir/b"):
            repository.put(path)
        repository.commit(age_days=30)
        repository.put("staged")
        repository.branch("dev")
        repository.put("c", branch="dev")
        repository.commit(branch="dev", age_days=1)
        repository.put("a")  # a hidden twin
        repository.keep_days(10)
        scene.live = {key: repository.store.read(key) for key in repository.objects() if not key.startswith("data/x")}
        return scene

    def litter(self) -> str:
        garbage = self.repository.put_stray("data/x/garbage", b"garbage")
        if self.min_age_seconds:
            time.sleep(self.min_age_seconds + 1)  # a store's times may be whole seconds
        return garbage

    def check_live(self, when: str) -> None:
        lost = self.live.keys() - self.repository.objects()
        assert not lost, f"{when}: live objects were deleted: {sorted(lost)}"

    def collector(self, spark: SparkSession, server: LakeFSClient | None = None) -> Collector:
        """Return a run that reads every range from the store."""
        settings = self.repository.lake.settings.model_copy(update={"max_range_cache_bytes": 0})
        if self.min_age_seconds:
            safety = SafetyParameters(longest_commit_minutes=0, min_age_hours=self.min_age_seconds / 3600)
            settings = settings.model_copy(update={"safety": safety})
        return Collector(spark, self.repository, server=server, settings=settings)

    def run(self, collector: Collector, garbage: str, when: str = "") -> bool:
        """Mark and sweep. Raise ``LakeFSGCError``, or delete exactly the garbage.

        Return False if the store reported garbage as missing, or as written again, although it exists as it was. The
        next run finds it again.
        """
        mark = collector.collect_and_mark()
        # The older object of the twin has no head that shows it, only its commit.
        assert marked(self.repository, mark) == {garbage}, when
        result = collector.sweep(mark, retries=0)
        result.raise_if_incomplete()
        if garbage not in self.repository.objects():
            return True
        outcomes = {"404": ("already_gone", "deleted"), "412": ("resurrected",)}.get(when[:3], ())
        assert counts(result) in [{outcome: 1} for outcome in outcomes], when
        return False
