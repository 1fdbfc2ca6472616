"""A repository with a known history: sixty objects of all kinds, a mark that waits, a sweep, and a backup."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backups.location import find_backup
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.undo.restore import restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.engine.workspace.history_index import HistoryIndex
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.mark_facts import write_few_facts

ERASED = {"erased": "people/anna.csv", "erased-too": "people/bert.csv", "restored": "people/carl.csv"}
"""The objects of the swept mark, with their paths. ``restored`` is in the store again."""

MAIN_LINE = ("c100", "c90", "c80", "c20", "c10")
"""The commits of main, by their age in days."""
LIVES = {
    f"from-{start}-to-{end or 'now'}": (start, end)
    for number, start in enumerate(MAIN_LINE)
    for end in (*MAIN_LINE[number + 1 :], "")
}
"""Objects with the commit of main that adds them, and the commit that no longer has them; empty: main still does."""
SEVERAL = 4
"""Objects of each kind that is not a life on main: ``stray``, ``stray-1`` and so on."""


def several(name: str) -> list[str]:
    """Return the names of the objects of one kind."""
    return [name, *(f"{name}-{number}" for number in range(1, SEVERAL))]


@dataclass
class KnownHistory:
    """The objects by name, their commits by name, and the marks. ``other`` is a repository that imported one object.

    Rules: 14 days by default, 30 for ``main``. The mark ``swept`` was backed up and swept. The mark ``waiting`` was
    made later, by a run.
    """

    repository: LakeRepository
    other: LakeRepository
    keys: dict[str, str] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    swept: Mark | None = None
    waiting: Mark | None = None
    index: tuple[str, dict[str, list[int]]] = ("", {})
    """The folder of the index that the run wrote, and the fingerprints in it, by range."""

    @classmethod
    def of(cls, lake: Lake, spark: SparkSession, backups: Backups) -> KnownHistory:
        history = cls(lake.repository(), lake.repository("other"))
        history._tell()
        collector = Collector(spark, history.repository)
        history.swept = collector.mark_objects(*sorted(history.keys[name] for name in ERASED))
        write_few_facts(history.repository.store, history.swept)
        backups.back_up(spark, collector, history.swept)
        collector.sweep(history.swept, live=[])
        restore(
            collector.context,
            RestoreSource(
                find_backup(backups.store, history.swept.mark_id), backups.location, history.repository.location
            ),
            prefix=ERASED["restored"],
        )
        marking = Collector(spark, history.repository)
        history.waiting = marking.collect_and_mark()
        write_few_facts(history.repository.store, history.waiting)
        index = HistoryIndex.read(open_store(marking.workspace.range_cache.location), marking.run.known_folders)
        history.index = (index.folder, {range_id: prints.tolist() for range_id, prints in index.prints.items()})
        return history

    def _tell(self) -> None:
        put, commit, keys, commits = self.repository.put, self.repository.commit, self.keys, self.commits
        self.repository.keep_days(14, main=30)
        for name, path in ERASED.items():
            keys[name] = put(path, f"content of {path}")
        keys["always"] = put("always")
        keys["two-paths"] = put("one-path")
        self.repository.stage("other-path", keys["two-paths"], size_bytes=8)
        keys["expired"] = put("table/part-0", "old part")
        self._live("c100")
        commits["c100"] = commit(age_days=100)
        for path in (*ERASED.values(), "table/part-0"):
            self.repository.delete(path)
        keys["replaced-on-main"] = put("table/part-1", "another old part")
        self._live("c90")
        commits["c90"] = commit(age_days=90)
        put("more")
        self._live("c80")
        commits["c80"] = commit(age_days=80)
        self.repository.tag("v1", commits["c80"])
        self._branches()
        keys["until-in-20-days"] = put("in-retention")
        self._live("c20")
        commits["c20"] = commit(age_days=20)
        self.repository.delete("in-retention")
        put("table/part-1", "a new part")
        keys["twin-of"] = put("twin", "the same content")
        self._live("c10")
        commits["c10"] = commit(age_days=10)
        self._not_committed()

    def _live(self, commit: str) -> None:
        for name, (start, end) in LIVES.items():
            if start == commit:
                self.keys[name] = self.repository.put(f"lives/{name}", f"content of {name}")
            elif end == commit:
                self.repository.delete(f"lives/{name}")

    def _branches(self) -> None:
        put, keys, repository = self.repository.put, self.keys, self.repository
        repository.branch("exp-7")
        keys["on-idle-head"] = put("idle", branch="exp-7")
        for name in several("idle-replaced"):
            keys[name] = put(name, branch="exp-7")
        self.commits["e70"] = repository.commit(branch="exp-7", age_days=70)
        for name in several("idle-replaced"):
            repository.delete(name, branch="exp-7")
        self.commits["e60"] = repository.commit(branch="exp-7", age_days=60)
        for name, age_days in (("deleted-lately", 5), ("deleted-long-ago", 50)):
            repository.branch(name)
            for number, key in enumerate(several(f"of-branch-{name}")):
                keys[key] = put(f"of-{name}{f'-{number}' if number else ''}", branch=name)
            self.commits[name] = repository.commit(branch=name, age_days=age_days)
            repository.delete_branch(name)

    def _not_committed(self) -> None:
        put, keys, repository = self.repository.put, self.keys, self.repository
        keys["imported"] = put("imported")
        self.other.stage("copy", f"{repository.namespace}{keys['imported']}", size_bytes=8)
        self.other.commit()
        repository.delete("imported")
        keys["twin"] = put("twin", "the same content")
        for name in several("staged"):
            keys[name] = put(name, f"an uncommitted change: {name}")
        for name in several("never-committed"):
            keys[name] = put(f"overwritten-before-a-commit/{name}", f"first {name}")
            put(f"overwritten-before-a-commit/{name}", f"second {name}")
        keys["new"] = put("uploaded-just-now", age_hours=0)
        repository.delete("uploaded-just-now")
        for name in several("stray"):
            keys[name] = repository.put_stray(f"data/stray/object-{name}", f"no lakeFS call made {name}".encode())
        keys["not-lakefs"] = repository.put_stray("terraform.tfstate")
        keys["elsewhere"] = repository.put_stray("exports/report.csv")
