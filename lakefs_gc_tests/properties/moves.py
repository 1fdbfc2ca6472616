"""The moves: events in a repository, other repositories and the collector, besides the operations of users."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from lakefs_sdk.exceptions import ApiException

from lakefs_gc.config import BackupSettings, SafetyParameters
from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER, METADATA_ID
from lakefs_gc.engine.records.approval import Approval, approve
from lakefs_gc.engine.records.backup_location import find_backup
from lakefs_gc.engine.records.check import CHECKS
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_parts import PART_SCHEMA, part_content, read_part
from lakefs_gc.engine.undo.restore import restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import (
    ApprovalError,
    ClockSkewError,
    CorruptFileError,
    LakeFSGCError,
    MarkError,
    NamespaceError,
    OtherRepositoryError,
    RepositoryNotFoundError,
    SafetyError,
    ServerError,
    ServerUnavailableError,
    SparkFailedError,
    StorageError,
)
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.properties.asset_collector import AssetCollector
from lakefs_gc_tests.properties.seeded import Move, SeededHistory, ViolationError, clock_off_by
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import STAGES, keys_below, marked
from lakefs_gc_tests.support.impatient_daemon import KILL_FILE
from lakefs_gc_tests.support.processes import kill_workers

_OTHERS = "other_repositories_were_read"
_OTHER_REPOSITORY = (SafetyError, OtherRepositoryError)


def _mark(h: SeededHistory, collector: AssetCollector, also_on: set[str] | None = None) -> Mark:
    return h.mark_with(collector, also_on)


def _usual_overrides(mark: Mark) -> list[str]:
    """The checks that a person overrides in a test. An unknown other repository is never overridden."""
    return [check.name for check in mark.checks if not check.passed and check.name != _OTHERS]


def _swept(h: SeededHistory, collector: AssetCollector, mark: Mark) -> None:
    """Sweep the approved mark, and assert that no live object is lost."""
    with h.nothing_live_is_lost():
        collector.sweep_approved(mark)
    h._count_swept(collector)


# -- 1: spellings of the folder


def folders(h: SeededHistory) -> list[str]:
    """Entries name objects by every spelling of the server's folder. The collector reads the files through a link."""
    folder, base = str(h.repository.folder), h.lake.folder
    (base / "mounted").symlink_to(base / "objects")
    (base / "objects" / "alias").symlink_to(h.repository.folder)
    spelled = {
        "folder": f"local://{folder}/",
        "percent": f"local://{folder.replace('/lake', '/%6Cake')}/",
        "parents": f"local://{folder}/../lake/",
        "dots": f"local://{folder}/./",
        "slashes": f"local:///{folder}/",
        "relative parents": "local://other/../lake/",
        "link": f"local://{base}/objects/alias/",
        "parents, link": f"local://{folder}/../alias/",
        "mount": f"local://{base}/mounted/lake/",
    }
    used, named = [], set()
    keys = sorted(key for key in h.repository.objects() if key.startswith("data/"))
    for number in range(h.random.randint(1, 4)):
        name, key = h.random.choice(sorted(spelled)), h.random.choice(keys)
        repository = h.random.choice((h.repository, h.repository, h.other))
        size = (h.repository.folder / key).stat().st_size
        try:
            repository.stage(f"spelled-{number}", spelled[name] + key, size_bytes=size)
        except ApiException:  # the server rejects such an address, so nothing references it
            continue
        used.append(name)
        named.add(key)
        if repository is h.other:
            h._shared.add(key)
        if repository is h.other or h.random.random() < 0.5:
            h.do(lambda _, repository=repository: repository.commit())  # type: ignore[misc]
    at = h.random.choice(("mounted", "objects"))
    collector = h.collector(mounts={"local://": (base / at).as_uri() + "/"})
    h.drawn = [f"folders: {name}" for name in (*used, at)]
    unexplained = not _is_told(h) or {"link", "parents, link", "mount"} & set(used)
    h.finishable = not unexplained
    with h.nothing_live_is_lost(also=named), h.may_fail(*([NamespaceError] if unexplained else [])):
        mark = _mark(h, collector)
        collector.give_approval(mark, _usual_overrides(mark))
        _swept(h, collector, mark)
    return h.drawn


def _is_told(h: SeededHistory) -> bool:
    return str(h.repository.folder) in h.server.issued_address("lake", "main")


# -- 2: another repository that cannot be read


def other_repository(h: SeededHistory) -> list[str]:
    """Another repository imported an object of this one, and cannot be read."""
    h.share("main", h.random.randint(0, 50))
    for key in sorted(h.repository.objects() - h.reachable())[:1]:
        h.other.stage("imported", h.repository.namespace + key)
        h.other.commit()
        h._shared.add(key)
    hows = ("gone", "truncated") if h.remote else ("gone", "linked", "a file", "truncated")
    how, when = h.random.choice(hows), h.random.choice(("before", "between"))
    named = when == "before" and h.random.random() < 0.4
    h.drawn = [f"other repository: {how}, {when}" + (", named" if named else "")]
    collector = h.collector(repositories_not_read=("other",)) if named else h.collector()
    if when == "before":
        mend = _hide(h, how)
        h.finishable = not named
        with (
            h.nothing_live_is_lost(without=h._shared if named else None),
            h.may_fail(*(() if named else (OtherRepositoryError,))),
        ):
            mark = _mark(h, collector, {_OTHERS})
            if not named and _OTHERS not in {check.name for check in mark.checks if check.blocks_sweep}:
                raise ViolationError("another repository could not be read, but no check failed")
            if named:
                collector.give_approval(mark, _usual_overrides(mark))
                collector.sweep_approved(mark)
            else:
                with h.must_fail(SafetyError):
                    collector.give_approval(mark, _usual_overrides(mark))
                # An approval that another tool wrote does not help.
                overrides = dict.fromkeys(_usual_overrides(mark), "a test")
                written = Approval(mark.mark_id, mark.repository, mark.digest, "b", "another", utc_now(), overrides)
                h.repository.store.put(MarkPaths.of(mark.mark_id).approval, written.to_json())
                with h.must_fail(SafetyError):
                    collector.sweep_approved(mark)
    else:
        mark = _mark(h, collector)
        collector.give_approval(mark, _usual_overrides(mark))
        # There is something new, because ranges that were read for the mark are not read again.
        [key, *_] = sorted(marked(h.repository, mark)) or sorted(h.repository.objects())
        h.other.stage("later", h.repository.namespace + key)
        h.other.commit()
        h._shared.add(key)
        mend = _hide(h, how)
        with h.must_fail(*_OTHER_REPOSITORY):
            collector.sweep_approved(mark)
    mend()
    return h.drawn


def _hide(h: SeededHistory, how: str) -> Callable[[], object]:
    """Make the other repository unreadable. Return a function that repairs it."""
    if h.remote:
        store = h.other.store
        return _spoil(store, [*keys_below(store, "" if how == "gone" else METADATA_FOLDER)], how)
    folder, aside = h.other.folder, h.lake.folder / "aside"
    metadata = folder / "_lakefs"
    if how == "gone":
        folder.rename(aside)
        return lambda: aside.rename(folder)
    if how == "truncated":
        before = {file: file.read_bytes() for file in metadata.iterdir() if METADATA_ID.fullmatch(file.name)}
        for file, content in before.items():
            file.write_bytes(content[: len(content) // 2])
        return lambda: [file.write_bytes(content) for file, content in before.items()]
    metadata.rename(aside)
    if how == "linked":
        metadata.symlink_to(aside)
    else:
        metadata.write_text("no folder")

    def mend() -> None:
        metadata.unlink()
        aside.rename(metadata)

    return mend


def _spoil(store: ObjectStore, keys: list[str], how: str) -> Callable[[], object]:
    """Remove, truncate or change objects. Return a function that repairs them."""
    if how != "gone":
        keys = [key for key in keys if METADATA_ID.fullmatch(key.removeprefix(METADATA_FOLDER))]
    before = dict(store.read_many(keys))
    if how == "gone":
        store.delete_many(keys)
    for key, content in before.items():
        if how != "gone":
            store.put(key, _spoiled(content, how))
    return lambda: [store.put(key, content) for key, content in before.items()]


def _spoiled(content: bytes, how: str) -> bytes:
    middle = len(content) // 2
    if how == "truncated":
        return content[:middle]
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


# -- 3: what was lost or rewritten below _lakefs/


def metadata(h: SeededHistory) -> list[str]:
    """A range, a metarange or a slice of data is missing, truncated, changed, or behind a symbolic link."""
    how = h.random.choice(("gone", "truncated", "changed", *(() if h.remote else ("linked", "slice linked"))))
    head = dict(h.server.branch_heads("lake"))["main"]
    of_head = h.server.metarange_of("lake", head)
    store = h.repository.store
    names = sorted(key.removeprefix(METADATA_FOLDER) for key in keys_below(store, METADATA_FOLDER))
    names = [name for name in names if METADATA_ID.fullmatch(name)]
    file = h.repository.folder / METADATA_FOLDER / h.random.choice((of_head, h.random.choice(names)))
    must = how == "slice linked" or file.name == of_head
    if how == "slice linked":
        [key, *_] = sorted(key for key in h._shown("main") if key.startswith("data/"))
        file = (h.repository.folder / key).parent
    when = h.random.choice(("before", "between stages", "between"))
    h.drawn = [f"metadata: {how}, {when}"]
    collector = h.collector()
    aside = h.lake.folder / "aside"
    mend: Callable[[], object] = lambda: None  # noqa: E731

    def damage() -> None:
        nonlocal mend
        if how in ("truncated", "changed", *(("gone",) if h.remote else ())):
            mend = _spoil(store, [METADATA_FOLDER + file.name], how)
            return
        file.rename(aside)
        if how != "gone":
            file.symlink_to(aside)

        def put_back() -> None:
            file.unlink(missing_ok=True)
            aside.rename(file)

        mend = put_back

    allowed = (CorruptFileError, StorageError, ServerError, SafetyError)
    live = h.reachable() & h.repository.objects()
    failed = False
    with h.may_fail(*allowed) as caught:
        if when == "before":
            damage()
            collector.materialize(*STAGES)
        elif when == "between stages":
            collector.materialize("store_listing", "uncommitted")
            damage()
            collector.materialize(*STAGES[2:])
        else:
            collector.materialize(*STAGES)
        mark = collector.mark(set(CHECKS))
        h.marked += 1
        if when == "between":
            damage()
        elif must and not (how == "slice linked" and when == "between stages"):
            raise ViolationError(f"{file.name} is {how}, and a mark was made")
        collector.give_approval(mark, _usual_overrides(mark))
        collector.sweep_approved(mark)
    failed = bool(caught)
    mend()
    if lost := live - h.repository.objects():
        raise ViolationError(f"live objects deleted, failed {failed}: {sorted(lost)}")
    return h.drawn


def rewritten_marks(h: SeededHistory) -> list[str]:
    """Between mark and sweep, the mark is rewritten to list live objects, or parts of it are lost."""
    collector = h.collector()
    mark = _mark(h, collector)
    paths, store = MarkPaths.of(mark.mark_id), h.repository.store
    how = h.random.choice(("part", "approved before", "approved after", "manifest lost", "summary lost", "part lost"))
    h.drawn = [f"rewritten marks: {how}"]
    live = sorted(key for key in h.reachable() & h.repository.objects() if key.startswith("data/"))
    if how != "approved after":
        collector.give_approval(mark, _usual_overrides(mark))
    if how.endswith("lost"):
        key = {"manifest lost": paths.manifest, "summary lost": paths.summary}.get(how, mark.parts[0].key)
        store.delete_many([key])
        with h.must_fail(MarkError, StorageError):
            collector.sweep_approved(mark)
        return h.drawn
    part = mark.parts[0]
    infos = store.stat_many(live)
    rows: list[dict[str, Any]] = [
        {"address": k, "size": infos[k].size_bytes, "last_modified": infos[k].last_modified} for k in live
    ]
    table = pa.concat_tables([read_part(store, part), pa.Table.from_pylist(rows, PART_SCHEMA)])
    content = part_content(table)
    store.put(part.key, content)
    if how == "part":
        with h.must_fail(MarkError):
            collector.sweep_approved(mark)
        return h.drawn
    size = sum(row["size"] for row in rows)
    sha256 = hashlib.sha256(content).hexdigest()
    bigger = replace(part, objects=table.num_rows, size_bytes=part.size_bytes + size, sha256=sha256)
    forged = replace(
        mark,
        parts=(bigger, *mark.parts[1:]),
        candidates=mark.candidates + len(rows),
        candidate_bytes=(mark.candidate_bytes or 0) + size,
    )
    forged = forged.sealed()
    store.put(paths.manifest, forged.to_json())
    if how == "approved before":
        with h.must_fail(ApprovalError):
            collector.sweep_approved(forged)
    else:
        collector.give_approval(forged, _usual_overrides(forged))
        with h.may_fail(SafetyError):
            _swept(h, collector, forged)
    return h.drawn


# -- 4: clocks apart


def clocks(h: SeededHistory) -> list[str]:
    """This machine's clock differs from the store's, in the mark or in the sweep."""
    seconds = h.random.choice((-1, 1)) * h.random.choice((10, 200, 290, 320, 4000, 100_000))
    over = abs(seconds) > 300
    h.drawn = [f"clocks: {seconds} s"]
    h.repository.put_stray("data/edge/newer", age_hours=23.95)
    h.repository.put_stray("data/edge/older", age_hours=24.02)
    collector = h.collector()
    if over and h.random.random() < 0.5:
        with clock_off_by(seconds), h.must_fail(ClockSkewError):
            collector.materialize("store_listing")
        return ["clocks: over, mark"]
    with clock_off_by(0 if over else seconds):
        mark = _mark(h, collector)
    there = {"data/edge/newer", "data/edge/older"} & marked(h.repository, mark)
    if there - h.reachable() > {"data/edge/older"} or "data/edge/newer" in there:
        raise ViolationError(f"the clock differs by {seconds} s, and an object newer than the cutoff is marked")
    collector.give_approval(mark, _usual_overrides(mark))
    with clock_off_by(seconds):
        if over:
            with h.must_fail(ClockSkewError):
                collector.sweep_approved(mark)
            return ["clocks: over, sweep"]
        _swept(h, collector, mark)
    return ["clocks: within"]


# -- 5: approvals from elsewhere


def _approved(store: ObjectStore, mark: Mark, via: str, overrides: dict[str, str]) -> Approval:
    safety, just_made = SafetyParameters(), timedelta(0)
    return approve(
        store, mark, mark.digest, by="b", via=via, now=utc_now(), age=just_made, safety=safety, overrides=overrides
    )


def approvals(h: SeededHistory) -> list[str]:
    """An approval of another installation or of another mark, or a sweep without the workspace of the mark."""
    collector = h.collector()
    mark = _mark(h, collector)
    how = h.random.choice(
        ("none", "older digest", "copied", "no reason", "damaged", "another installation", "another workspace")
    )
    h.drawn = [f"approvals: {how}"]
    store, path = h.repository.store, MarkPaths.of(mark.mark_id).approval
    overrides = dict.fromkeys(_usual_overrides(mark), "a test")
    if how == "copied":
        _approved(store, mark, "v", overrides)
        content = store.read(path)
        collector = h.collector()
        mark = _mark(h, collector)
        store.put(MarkPaths.of(mark.mark_id).approval, content)
    elif how != "none":
        approval = _approved(store, mark, "another", overrides)
        content = approval.to_json()
        if how == "older digest":
            store.put(path, content.replace(mark.digest.encode(), b"sha256:" + b"0" * 64))
        elif how == "no reason":
            store.put(path, json.dumps(json.loads(content) | {"overrides": {_OTHERS: ""}}).encode())
        elif how == "damaged":
            store.put(path, content[: len(content) // 2])
    if how.startswith("another"):
        h.users(0, 3)
        if how == "another workspace":
            before = h.settings
            h.settings = before.model_copy(update={"work_url": (h.lake.folder / "work-elsewhere").as_uri()})
            collector = h.collector()
            h.settings = before
        _swept(h, collector, mark)
    else:
        with h.must_fail(ApprovalError, CorruptFileError):
            collector.sweep_approved(mark)
    return h.drawn


# -- 6: killed during deletes


def killed(h: SeededHistory) -> list[str]:
    """A sweep dies between a delete and its outcome. The next sweep counts exactly, and a restore brings all back."""
    with_backup = h.random.random() < 0.5
    place = Backups(StoreLocation((h.lake.folder / "backups").as_uri()))
    (h.lake.folder / "backups").mkdir()
    before = h.settings
    sweep = before.sweep.model_copy(update={"objects_per_request": h.random.choice((1, 2, 1000))})
    h.settings = before.model_copy(update={"sweep": sweep, "backup": BackupSettings(url=place.location.url)})
    collector = h.collector()
    h.settings = before
    mark = _mark(h, collector)
    if not mark.candidates:
        return ["killed: nothing marked"]
    if with_backup:
        place.back_up(h.spark, collector, mark)
    overrides = [check.name for check in mark.checks if not check.passed]
    collector.give_approval(mark, overrides)
    there = h.repository.objects() & marked(h.repository, mark)
    kill_file = h.remote.kill_file if h.remote else h.lake.folder / KILL_FILE
    kill_file.write_text(str(h.random.randint(0, 3)))
    with h.nothing_live_is_lost(), h.may_fail(SparkFailedError) as caught:
        collector.sweep_approved(mark)
    # Spark's other workers outlive the one that was killed. They may delete, because their second look is recent.
    kill_workers(h.spark)
    kill_file.unlink(missing_ok=True)
    how = "killed" if caught else "nothing to delete"
    if h.random.random() < 0.4:
        h.do(lambda _: h.stage_garbage("main", "again", h.random.randint(0, 50)))
        h.do(lambda _: h.upload_again("main", h.random.randint(0, 50)))
    damaged = caught and h.random.random() < 0.25 and _damage_ledger(h, mark)
    with h.nothing_live_is_lost(), h.may_fail(*([CorruptFileError] if damaged else [])) as refused:
        collector.sweep_approved(mark)
        h._count_swept(collector)
    if damaged:
        return [f"killed: {how}, ledger damaged" + ("" if refused else ", gone on")]
    now = h.repository.objects()
    expected = {key: "resurrected" if key in now else "deleted" for key in there}
    if wrong := {
        key: (collector.swept.get(key), want) for key, want in expected.items() if collector.swept[key] != want
    }:
        raise ViolationError(f"outcomes, and what they should be: {wrong}")
    if now & there - h.reachable() - collector.addresses("uncommitted"):
        how += ", some are kept"
    if with_backup:
        gone = there - now
        # A restore waits minutes for a delete without a known end. Here this time has passed.
        for key in keys_below(h.repository.store, MarkPaths.of(mark.mark_id).ledger):
            h.repository.age(key, hours=1)
        result = restore(
            collector.context,
            RestoreSource(find_backup(place.store, mark.mark_id), place.location, h.repository.location),
        )
        if result.objects["restored"] != len(gone) or not gone <= h.repository.objects():
            raise ViolationError(f"restored {result.objects}, and {len(gone)} were deleted")
        with h.must_fail(ApprovalError):
            collector.sweep_approved(mark)
    return [f"killed: {how}" + (", restored" if with_backup else "")]


def _damage_ledger(h: SeededHistory, mark: Mark) -> bool:
    keys = sorted(keys_below(h.repository.store, MarkPaths.of(mark.mark_id).ledger))
    if keys:
        key = h.random.choice(keys)
        h.repository.store.put(key, h.repository.store.read(key)[:-9])
    return bool(keys)


# -- 7: what else cannot be looked at

_METHODS = (
    "repositories",
    "branch_heads",
    "tags",
    "log_page",
    "metarange_of",
    "shown_address",
    "shown_objects",
    "changes",
    "retention_rules",
    "prepare_uncommitted",
    "prepare_commits",
    "issued_address",
    "grace_period_seconds",
)


def server(h: SeededHistory) -> list[str]:
    """A call of the server fails, once or from then on, in the mark or in the sweep: forbidden, not found, down."""
    method, kind = h.random.choice(_METHODS), h.random.choice((ServerError, RepositoryNotFoundError))
    if h.random.random() < 0.3:
        kind = ServerUnavailableError
    when, count, once = h.random.choice(("mark", "sweep")), h.random.randint(0, 3), h.random.random() < 0.5
    h.drawn = [f"server: {method}, {when}"]
    real = getattr(LakeFSClient, method)
    calls = 0

    def fails(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count + 1 or (calls > count and not once):
            raise kind("not from here", status=404 if kind is RepositoryNotFoundError else 403)
        return real(*args, **kwargs)

    collector = h.collector()
    with h.nothing_live_is_lost(), h.may_fail(LakeFSGCError), pytest.MonkeyPatch.context() as patch:
        if when == "mark":
            patch.setattr(LakeFSClient, method, fails)
        collector.materialize(*STAGES)
        mark = collector.mark(set(CHECKS))
        h.marked += 1
        if when == "sweep":
            if mark.candidates:
                h.do(lambda _: h.stage_garbage("main", "since", h.random.randint(0, 50)))
                with pytest.MonkeyPatch.context() as quiet:
                    quiet.setattr(LakeFSClient, method, real)
                    live = h.reachable() & h.repository.objects()
            patch.setattr(LakeFSClient, method, fails)
        try:
            collector.give_approval(mark, _usual_overrides(mark))
            collector.sweep_approved(mark)
        finally:
            if when == "sweep" and mark.candidates and (lost := live - h.repository.objects()):
                raise ViolationError(f"live since the mark, but deleted: {sorted(lost)}")
    return h.drawn


def workspace(h: SeededHistory) -> list[str]:
    """A file of the workspace is missing or truncated, between two stages or between mark and sweep."""
    stage, how = h.random.choice(STAGES), h.random.choice(("gone", "truncated", "empty"))
    when = h.random.choice(("mark", "sweep"))
    h.drawn = [f"workspace: {how}, {when}"]
    collector = h.collector()

    def damage() -> None:
        folder = h.lake.folder / "work"
        files = sorted(
            file
            for file in folder.rglob("*")
            if file.is_file() and not file.name.startswith(".") and (f"/{stage}/" in str(file) or "cache" in str(file))
        )
        if files:
            file = h.random.choice(files)
            content = file.read_bytes()
            if how == "gone":
                file.unlink()
            else:
                file.write_bytes(content[: len(content) // 2] if how == "truncated" else b"")

    with h.nothing_live_is_lost(), h.may_fail(LakeFSGCError):
        cut = STAGES.index(stage) + 1
        collector.materialize(*STAGES[:cut])
        if when == "mark":
            damage()
        collector.materialize(*STAGES[cut:])
        mark = collector.mark(set(CHECKS))
        h.marked += 1
        collector.give_approval(mark, _usual_overrides(mark))
        if when == "sweep":
            damage()
        collector.sweep_approved(mark)
    h.finishable = False
    return h.drawn


def meanwhile(h: SeededHistory) -> list[str]:
    """Users change the repository before each second look of a sweep, and the mark may be swept again."""
    collector = h.collector()
    h.marks.append((collector, _mark(h, collector)))
    h._count_hidden(collector)
    h.marked -= 1
    h.users(0, 4)
    for _ in range(h.random.randint(1, 2)):
        h.sweep(0, [h.operation() for _ in range(3)])
    return ["meanwhile"]


MOVES: dict[str, Move] = {
    "approvals": Move(approvals),
    "clocks": Move(clocks),
    "folders, known": Move(folders, {"issues_folder_addresses": True}, needs_folder=True),
    "folders, unknown": Move(folders, needs_folder=True),
    "killed": Move(killed),
    "meanwhile": Move(meanwhile),
    "metadata": Move(metadata),
    "other repository": Move(other_repository),
    "rewritten marks": Move(rewritten_marks),
    "server": Move(server),
    "workspace": Move(workspace),
}
"""The moves by name. A seed selects one."""
