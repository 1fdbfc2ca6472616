"""Which other repositories can be read, and what becomes of those that cannot (rules 5 and 12)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.collect.references.other_repositories import content_of_history
from lakefs_gc.engine.records.check import OTHER_REPOSITORIES_WERE_READ as OTHERS
from lakefs_gc.engine.records.check import Answer, Check
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.errors import (
    IncompleteAnswerError,
    OtherRepositoryError,
    RepositoryNotFoundError,
    SafetyError,
    StorageError,
    StoreUnavailableError,
)
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc_tests.support.collector import Collector, counts
from lakefs_gc_tests.support.faulty_s3 import error
from lakefs_gc_tests.support.faulty_store import LevelledS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import LakeFSProxy, refusal
from lakefs_gc_tests.support.moved_repositories import elsewhere, elsewhere_at_work


def check_of(mark: Mark) -> Check:
    [check] = [check for check in mark.checks if check.name == OTHERS]
    return check


def test_a_repository_that_cannot_be_read_is_reported(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    for name in ("gone", "elsewhere", "unknown-store", "fine"):
        lake.repository(name)
    places = {"gone": "local://nowhere", "elsewhere": "mem://x", "unknown-store": "oss://bucket/x"}
    collector = Collector(spark, repository, server=elsewhere(lake, proxy, places))
    collector.collect()
    facts = collector.manifest("foreign_references").facts
    assert facts["checked"] == 1
    assert facts["unreadable"].keys() == places.keys()
    assert "nowhere" in facts["unreadable"]["gone"]
    assert "unknown kind of URL" in facts["unreadable"]["unknown-store"]


@pytest.mark.parametrize("left_there", ["", "retention/gc/rules/config.json"])
def test_an_empty_folder_does_not_prove_that_a_repository_is_empty(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy, left_there: str
) -> None:
    lake.repository("empty")
    not_mounted = lake.repository("other")
    not_mounted.put("x")
    not_mounted.commit()
    mount_point = lake.folder / "objects" / "mount-point"
    mount_point.mkdir()
    if left_there:
        file = mount_point / "_lakefs" / left_there
        file.parent.mkdir(parents=True)
        file.touch()
    lake.repository("empty-elsewhere")
    places = dict.fromkeys(("empty-elsewhere", "other"), "local://mount-point")
    collector = Collector(spark, repository, server=elsewhere(lake, proxy, places))
    collector.materialize("store_listing", "foreign_references")
    facts = collector.manifest("foreign_references").facts
    assert facts["checked"] == 1, "empty"
    assert facts["unreadable"].keys() == {"empty-elsewhere", "other"}
    assert "mount-point/_lakefs/ lacks" in facts["unreadable"]["other"]
    assert "not the file that lakeFS writes" in facts["unreadable"]["empty-elsewhere"]


def test_a_repository_that_is_deleted_while_it_is_read_is_not_unreadable(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    """lakeFS deletes the branches first, and the name last."""

    class Deletes(LakeFSClient):
        def branch_heads(self, repository: str) -> Iterator[tuple[str, str]]:
            if repository != "other":
                return super().branch_heads(repository)
            lake.client.repositories_api.delete_repository("other")
            return iter(())

    lake.repository("other")
    collector = Collector(spark, repository, server=Deletes(lake.credentials))
    collector.materialize("store_listing", "foreign_references")
    assert collector.manifest("foreign_references").facts["unreadable"] == {}


def test_a_repository_that_is_not_found_and_not_listed_either(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    """Two wrong answers, a 404 and a short list, do not make it a deleted repository."""

    class Fails(LakeFSClient):
        def branch_heads(self, repository: str) -> Iterator[tuple[str, str]]:
            if repository != "other":
                return super().branch_heads(repository)
            self.is_short = True
            raise RepositoryNotFoundError("not found")

        is_short = False

        def repositories(self) -> Iterator[Repository]:
            return (listed for listed in super().repositories() if not self.is_short or listed.name != "other")

    lake.repository("other")
    collector = Collector(spark, repository, server=Fails(lake.credentials, sleep=lambda _: None))
    with pytest.raises(IncompleteAnswerError, match="does not list them: other"):
        collector.materialize("store_listing", "foreign_references")


def test_another_client_knows_which_repositories_the_run_has_listed(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    """New credentials see fewer repositories: lakeFS omits what they may not read, without an error."""

    class SeesFewer(LakeFSClient):
        def repositories(self) -> Iterator[Repository]:
            return (listed for listed in super().repositories() if listed.name != "other")

    lake.repository("other")
    collector = Collector(spark, repository)
    collector.materialize("store_listing")
    collector.server = SeesFewer(lake.credentials, sleep=lambda _: None)
    with pytest.raises(IncompleteAnswerError, match="does not list them: other"):
        collector.materialize("foreign_references")


def test_a_repository_in_deletion(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    """lakeFS lists it until its deletion has ended, which it may never do."""
    other = lake.repository("other")
    mounts = {**lake.settings.mounts, other.namespace: other.folder.as_uri() + "/"}
    proxy.fail("/repositories/other/tags", *[refusal(410, "repository in deletion")] * 9)
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    collector = Collector(
        spark, repository, settings=lake.settings.model_copy(update={"mounts": mounts}), server=server
    )
    with pytest.raises(StorageError, match="repository in deletion") as raised:
        content_of_history(server, server.repository("other"), "lake", 10)
    assert "delete it again" in raised.value.remedy
    collector.materialize("store_listing", "foreign_references")
    assert "repository in deletion" in collector.manifest("foreign_references").facts["unreadable"]["other"]


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
    with pytest.raises(OtherRepositoryError, match=f"Repository other .*lake/objects/other/{file}") as refused:
        collector.materialize("foreign_references")
    assert "safety.repositories_not_read" in refused.value.remedy


@pytest.mark.parametrize("created", ["before the mark", "after the mark"])
def test_objects_imported_by_a_repository_that_became_unreadable_are_not_deleted(
    spark: SparkSession, lake: Lake, repository: LakeRepository, created: str
) -> None:
    imported, garbage = (repository.put_stray(f"data/s/{name}") for name in ("imported", "garbage"))
    other = lake.repository("other") if created == "before the mark" else None
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert not mark.unreadable
    other = other or lake.repository("other")
    other.stage("x", f"local://lake/{imported}")
    other.commit()
    away = other.folder.rename(other.folder.with_name("not-mounted"))
    with pytest.raises(
        SafetyError, match="Repository other cannot be read, and the approval of this mark does not accept that"
    ) as refused:
        collector.sweep(mark)
    assert "mark again" in refused.value.remedy
    assert repository.objects() >= {imported, garbage}
    away.rename(other.folder)
    assert counts(collector.sweep(mark)) == {"deleted": 1, "resurrected": 1}
    assert imported in repository.objects()


def test_an_unavailable_store_fails_the_run_but_an_accepted_one_does_not_fail_the_sweep(
    spark: SparkSession,
    lake: Lake,
    repository: LakeRepository,
    proxy: LakeFSProxy,
    levelled_s3: LevelledS3,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unavailable store fails the run and is not a failed check. A repository that a mark accepts is not needed."""
    monkeypatch.setattr(RetryPolicy, "pause_seconds", lambda policy, failures: 0.0)
    repository.put_stray("data/s/garbage")
    lake.repository("other")
    places = {"other": "s3://bucket/other"}
    collector = Collector(spark, repository, server=elsewhere(lake, proxy, places))
    levelled_s3.faults.append(lambda request: error(503, "ServiceUnavailable"))
    collector.collect(until="committed")
    with pytest.raises(
        StoreUnavailableError, match="Repository other may reference objects of this namespace"
    ) as refused:
        collector.materialize("foreign_references")
    assert "safety.repositories_not_read" in refused.value.remedy
    levelled_s3.faults[:] = [lambda request: error(403, "AccessDenied")]
    mark = collector.collect_and_mark()
    assert mark.unreadable == {"other"}
    assert collector.read_mark(mark.mark_id) == mark
    unread = check_of(mark)
    assert (unread.answer, unread.blocks_sweep) == (Answer.UNKNOWN, True)
    with pytest.raises(SafetyError, match="Repository other cannot be read"):
        collector.sweep(mark)
    says_nothing = replace(mark, run={name: fact for name, fact in mark.run.items() if name != "unreadable"})
    with pytest.raises(SafetyError, match="Repository other cannot be read"):
        collector.sweep(says_nothing, overrides=[OTHERS])
    levelled_s3.faults[:] = [lambda request: error(503, "ServiceUnavailable")]
    lake.repository("newer")
    places["newer"] = "s3://bucket/newer"
    with pytest.raises(SafetyError, match="Repository newer cannot be read"):
        collector.sweep(mark, overrides=[OTHERS])
    del places["newer"]
    assert counts(collector.sweep(mark, overrides=[OTHERS])) == {"deleted": 1}


def test_a_repository_that_the_settings_exempt_is_not_read(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy, levelled_s3: LevelledS3
) -> None:
    """A store that never answers fails no run once its repository is exempt, but every mark has a failed check."""
    repository.put_stray("data/s/garbage")
    lake.repository("other")
    levelled_s3.faults.append(lambda request: error(503, "ServiceUnavailable"))
    collector = Collector(
        spark,
        repository,
        server=elsewhere(lake, proxy, {"other": "s3://bucket/other"}),
        safety=SafetyParameters(repositories_not_read=("other",)),
    )
    mark = collector.collect_and_mark()
    assert (sorted(mark.unreadable), sorted(mark.not_asked)) == ([], ["other"])
    exempt = check_of(mark)
    assert (exempt.answer, exempt.blocks_sweep) == (Answer.UNKNOWN, False)
    not_named_then = replace(mark, run=mark.run | {"not_asked": []})
    with pytest.raises(SafetyError, match="names it now, but did not for the mark"):
        collector.sweep(not_named_then)
    assert counts(collector.sweep(mark)) == {"deleted": 1}
    assert levelled_s3.requests == [], "it is not asked at all"


def test_a_check_that_was_switched_off_is_unknown(spark: SparkSession, lake: Lake, repository: LakeRepository) -> None:
    """The other repository imports a marked object. It is not read, so the mark is not swept without an override."""
    imported = repository.put_stray("data/s/imported")
    off = SafetyParameters(check_foreign_references=False)
    collector = Collector(spark, repository, safety=off)
    mark = collector.collect_and_mark()
    unread = check_of(mark)
    assert (unread.answer, unread.blocks_sweep) == (Answer.UNKNOWN, True)
    assert "safety.check_foreign_references is off" in unread.message
    with pytest.raises(SafetyError, match=r"safety\.check_foreign_references is false"):
        collector.sweep(mark)
    # Switched off only for the sweep, after a mark for which the other repositories were read.
    looked = Collector(spark, repository)
    read_for = looked.collect_and_mark()
    other = lake.repository("other")
    other.stage("x", f"local://lake/{imported}")
    other.commit()
    looked.safety = off
    with pytest.raises(SafetyError, match=r"safety\.check_foreign_references is false"):
        looked.sweep(read_for)
    assert imported in repository.objects()


def test_an_override_for_one_repository_is_not_one_for_all(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    """A person accepts that one repository cannot be read. Then none is read, and another one refers to an object."""
    key = repository.put_stray("data/slice/two", b"54321")
    unread, importer = lake.repository("unread"), lake.repository("importer")
    for other in (unread, importer):
        other.put("q")
        other.commit()
    (unread.folder / "_lakefs").rename(unread.folder / "_away")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    importer.stage("p", repository.namespace + key, size_bytes=5)
    importer.commit()
    collector.safety = SafetyParameters(check_foreign_references=False)
    with pytest.raises(SafetyError, match=r"safety\.check_foreign_references is false"):
        collector.sweep(mark, overrides=["other_repositories_were_read"])
    assert key in repository.objects()
    collector.safety = SafetyParameters()
    collector.sweep(mark, overrides=["other_repositories_were_read"])
    assert key in repository.objects()


def test_a_namespace_that_lost_its_files_is_not_empty(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    """A commit that the server does not find does not prove that the repository is gone."""
    repository.put_stray("data/s/garbage")
    other = lake.repository("other")
    other.put("a")
    other.commit()
    shutil.rmtree(other.folder / "_lakefs")
    proxy.spoil.append(lambda asked, real: refusal(404) if "/repositories/other/commits/" in asked.path else None)
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    mark = Collector(spark, repository, server=server).collect_and_mark()
    assert mark.unreadable == {"other"}


def test_a_repository_that_lost_a_range_is_unreadable(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    """Objects of its other ranges are kept. Those of the missing range are unknown, until a person accepts that."""
    imported, maybe, garbage = (repository.put_stray(f"data/s/{name}") for name in ("imported", "maybe", "garbage"))
    other, whole = lake.repository("other"), lake.repository("whole")
    for place, key in ((whole, maybe), (other, imported)):
        place.stage("first", f"{repository.namespace}{key}")
        place.commit()
    other.stage("first", f"{repository.namespace}{maybe}")
    metarange = other.metadata_file(other.metarange_of(other.commit()))
    [range_id] = read_metarange(other.store.read(metarange), metarange).column("range_id").to_pylist()
    # Ranges are named by their content, so the same range in another repository proves nothing.
    whole.store.put(whole.metadata_file(range_id), other.store.read(other.metadata_file(range_id)))
    other.store.delete_many([other.metadata_file(range_id)])
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert mark.unreadable == {"other"}
    reason = collector.manifest("foreign_references").facts["unreadable"]["other"]
    assert f"objects/other/_lakefs/{range_id} does not exist" in reason
    assert "1 ranges are missing" in reason
    assert (check_of(mark).answer, check_of(mark).blocks_sweep) == (Answer.UNKNOWN, True)
    assert collector.addresses("foreign_references") == {imported, maybe}
    with pytest.raises(
        SafetyError, match="Repository other cannot be read, and the approval of this mark does not accept that"
    ):
        Collector(spark, repository, settings=elsewhere_at_work(lake)).sweep(mark)
    Collector(spark, repository, settings=elsewhere_at_work(lake)).sweep(mark, overrides=[OTHERS])
    assert repository.objects() & {imported, maybe, garbage} == {imported, maybe}
