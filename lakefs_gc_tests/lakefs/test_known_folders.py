"""Full addresses of a local store that the collector reaches by another path than the server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import lakefs_sdk
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakefs_gc.errors import NamespaceError
from lakefs_gc.formats.addresses import server_spellings, spellings
from lakefs_gc.formats.entry import AddressType
from lakefs_gc.lakefs import known_folders
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.known_folders import KnownFolders, folders_of, learn_folders
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository

SLICE, ID = "g0000000000000000000", "c0000000000000000000"
KEY = f"data/{SLICE}/{ID}"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A server that issues addresses with its own folder. The collector reaches that folder at ``mounted``."""
    with Lake(tmp_path, options=SandboxOptions(issues_folder_addresses=True)) as lake:
        (tmp_path / "mounted").symlink_to(tmp_path / "objects")
        yield lake


@pytest.fixture
def silent_lake(tmp_path: Path) -> Iterator[Lake]:
    """The same with a server that does not reveal its folder."""
    with Lake(tmp_path) as lake:
        (tmp_path / "mounted").symlink_to(tmp_path / "objects")
        yield lake


def collector(spark: SparkSession, repository: LakeRepository, *, at: str = "mounted", **mounts: str) -> Collector:
    folder = (repository.lake.folder / at).as_uri() + "/"
    settings = repository.lake.settings.model_copy(update={"mounts": {"local://": folder} | mounts})
    return Collector(spark, repository, settings=settings)


def candidates(collector: Collector) -> set[str]:
    collector.collect_and_mark()
    return collector.addresses("candidates")


def by_folder(repository: LakeRepository, key: str) -> str:
    return f"local://{repository.folder}/{key}"


@pytest.mark.long(30)
def test_an_object_linked_by_the_servers_folder_is_live(spark: SparkSession, lake: Lake) -> None:
    repository, other = lake.repository(), lake.repository("other")
    committed, staged, of_another, garbage = (repository.put_stray(f"data/s/{name}") for name in "abcd")
    repository.stage("linked", by_folder(repository, committed), size_bytes=5)
    repository.commit()
    repository.stage("new", by_folder(repository, staged), size_bytes=5)
    other.stage("imported", by_folder(repository, of_another), size_bytes=5)
    other.commit()
    assert candidates(collector(spark, repository)) == {garbage}


def test_a_clients_own_link_is_live(spark: SparkSession, lake: Lake) -> None:
    repository = lake.repository()
    given = lake.client.staging_api.get_physical_address("lake", "main", "linked")
    key = str(given.physical_address).removeprefix(by_folder(repository, ""))
    repository.put_stray(key)
    body = lakefs_sdk.StagingMetadata(staging=given, checksum="sum", size_bytes=5)
    lake.client.staging_api.link_physical_address("lake", "main", "linked", body)
    garbage = repository.put_stray("data/s/garbage")
    assert candidates(collector(spark, repository)) == {garbage}


def committed_link(repository: LakeRepository, key: str) -> None:
    repository.stage("linked", by_folder(repository, key), size_bytes=5)
    repository.commit()


def staged_link(repository: LakeRepository, key: str) -> None:
    repository.stage("linked", by_folder(repository, key), size_bytes=5)


def foreign_link(repository: LakeRepository, key: str) -> None:
    other = repository.lake.repository("other")
    other.stage("linked", by_folder(repository, key), size_bytes=5)
    other.commit()


@pytest.mark.parametrize(
    ("link", "stage"),
    [(committed_link, "committed"), (staged_link, "uncommitted"), (foreign_link, "foreign_references")],
)
def test_an_address_in_an_unknown_folder_fails_the_run(
    spark: SparkSession, silent_lake: Lake, link: Callable[[LakeRepository, str], None], stage: str
) -> None:
    repository = silent_lake.repository()
    repository.put("something")
    repository.commit()
    link(repository, repository.put_stray(KEY))
    with pytest.raises(NamespaceError, match="is in an unknown folder"):
        collector(spark, repository).collect(until=stage)
    # With a mount for the server's folder, the folder is known.
    mounts = {f"local://{repository.folder.parent}/": (silent_lake.folder / "mounted").as_uri() + "/"}
    assert candidates(collector(spark, repository, **mounts)) == set()


def test_an_object_that_is_gone_from_a_mounted_folder_is_missing(spark: SparkSession, silent_lake: Lake) -> None:
    """Only the mount tells that its address is one of the namespace: its folder is gone, too."""
    repository = silent_lake.repository()
    repository.put("something")
    repository.commit()
    committed_link(repository, repository.put_stray(KEY))
    (repository.folder / KEY).unlink()
    (repository.folder / KEY).parent.rmdir()
    mounts = {f"local://{repository.folder.parent}/": (silent_lake.folder / "mounted").as_uri() + "/"}
    mounted = collector(spark, repository, **mounts)
    mounted.collect(until="missing")
    assert mounted.addresses("missing") == {KEY}


@pytest.mark.parametrize("at", ["objects", "mounted"])
@pytest.mark.parametrize("way", ["{base}/alias/", "{base}/lake/../alias/", "{base}/al%69as/"])
def test_a_link_beside_the_namespace_leads_to_its_objects(spark: SparkSession, lake: Lake, at: str, way: str) -> None:
    """Such an address is in no known folder, but the file at its path proves that it is an object of the namespace."""
    repository, other = lake.repository(), lake.repository("other")
    (lake.folder / "objects" / "alias").symlink_to(repository.folder)
    committed, staged, of_another, garbage = (repository.put_stray(f"data/s/{name}") for name in "abcd")
    url = "local://" + way.format(base=lake.folder / "objects")
    repository.stage("linked", url + committed, size_bytes=5)
    repository.commit()
    repository.stage("new", url + staged, size_bytes=5)
    other.stage("imported", url + of_another, size_bytes=5)
    other.commit()
    assert candidates(collector(spark, repository, at=at)) == {garbage}


def test_an_import_from_outside_is_not_in_the_namespace(spark: SparkSession, lake: Lake) -> None:
    repository = lake.repository()
    outside = lake.folder / "objects" / "imports" / "data" / "train"
    outside.mkdir(parents=True)
    (outside / "1.jpg").write_text("image")
    repository.stage("image", f"local://{outside}/1.jpg", size_bytes=5)
    repository.put("something")
    repository.commit()
    garbage = repository.put_stray("data/s/garbage")
    assert candidates(collector(spark, repository)) == {garbage}


# -- each spelling, without a run


@pytest.fixture
def known(tmp_path: Path) -> KnownFolders:
    """The namespace ``local://lake/`` at ``here/lake``, which the server has at ``/srv/lakefs/lake``."""
    (tmp_path / "here" / "lake" / "data" / SLICE).mkdir(parents=True)
    (tmp_path / "here" / "lake" / KEY).write_text("live")
    store = StoreLocation((tmp_path / "here" / "lake").as_uri())
    learnt = server_spellings(f"local:///srv/lakefs/lake/{KEY},{'s' * 43}", "local://lake")
    return KnownFolders("local://lake/", store, (*spellings("local://lake", store.url), *learnt), learnt, ())


@pytest.mark.parametrize(
    "url",
    [
        f"local://lake/{KEY}",
        f"local:///srv/lakefs/lake/{KEY}",
        f"LOCAL:///srv/lakefs/lake/{KEY}",
        f"local:///srv/lakefs/srv/lakefs/lake/{KEY}",  # as the API returns a full address
        f"local:///srv//lakefs/./lake/{KEY}",
        f"local:///srv/lakefs/other/../lake/{KEY}",
        f"local:////srv/lakefs/lake/{KEY}",
        f"local://other/../lake/{KEY}",
        f"local:///srv/lakefs/%6Cake/{KEY}",
        f"local:///srv/lakefs/other/%2E%2E/lake/{KEY}",
        f"Local:///srv/lakefs/lake/{KEY}?version=1",
    ],
)
def test_each_spelling_of_a_known_folder_names_the_object(known: KnownFolders, url: str) -> None:
    key = known.key_or_outside(url)
    assert key is not None
    assert key.partition("?")[0] == KEY


@pytest.mark.parametrize(
    "url",
    [
        f"local:///mnt/alias/lake/{KEY}",
        f"local:///mnt/alias/{KEY}",  # the namespace's folder under another name
        f"local:///mnt/alias/{SLICE}/{ID}",  # its data/
        f"local:///mnt/alias/{ID}",  # a slice
        f"LOCAL:///mnt/alias/lake/{KEY}?x=1",
        f"local:///mnt/alias//lake/x/../{KEY}",
        f"local:///mnt/alias/lake/%64ata/{SLICE}/{ID}",
        f"local://alias/{KEY}",
    ],
)
def test_an_address_that_may_be_another_spelling_is_refused(known: KnownFolders, url: str) -> None:
    with pytest.raises(NamespaceError, match="is in an unknown folder"):
        known.key_or_outside(url)


@pytest.mark.parametrize(
    "url",
    [
        "local:///imports/train/1.jpg",
        "local:///imports/data/train/1.jpg",
        f"local:///srv/lakefs/other/data/{SLICE}/{ID[:-1]}1",  # an object of another repository
        f"s3://bucket/lake/{KEY}",
    ],
)
def test_an_address_that_no_mount_can_lead_to_the_namespace_is_outside(known: KnownFolders, url: str) -> None:
    assert known.key_or_outside(url) is None


def test_a_file_on_this_machine_shows_whether_it_is_the_same(known: KnownFolders, tmp_path: Path) -> None:
    lake = tmp_path / "here" / "lake"
    for name in ("copy", "hard"):
        (tmp_path / "here" / name / "data" / SLICE).mkdir(parents=True)
    (tmp_path / "here" / "copy" / KEY).write_text("another")
    os.link(lake / KEY, tmp_path / "here" / "hard" / KEY)
    (tmp_path / "here" / "linked").symlink_to(lake)
    (tmp_path / "here" / "report.csv").symlink_to(lake / KEY)
    (tmp_path / "here" / "other.csv").write_text("another")
    assert known.key_or_outside(f"local:///srv/lakefs/copy/{KEY}") is None
    assert known.key_or_outside(f"local:///srv/lakefs/linked/{KEY}") == KEY
    assert known.key_or_outside(f"local:///srv/lakefs/hard/{KEY}") == KEY
    assert known.key_or_outside("local:///srv/lakefs/report.csv") == KEY
    assert known.key_or_outside("local:///srv/lakefs/other.csv") is None


def test_a_mount_point_without_its_mount_proves_nothing(spark: SparkSession, lake: Lake) -> None:
    repository = lake.repository()
    live = repository.put_stray(KEY)
    (lake.folder / "alias").symlink_to(lake.folder / "objects")
    repository.stage("linked", f"local://{lake.folder}/alias/lake/{KEY}", size_bytes=5)
    repository.commit()
    mounted = lake.folder / "mnt"
    mounted.mkdir()
    mounts = {f"local://{lake.folder}/alias/": mounted.as_uri() + "/"}
    with pytest.raises(NamespaceError, match="is in an unknown folder"):
        collector(spark, repository, **mounts).collect()
    mounted.rmdir()
    mounted.symlink_to(lake.folder / "objects")
    assert live not in candidates(collector(spark, repository, **mounts))


@pytest.mark.parametrize("there", [(), ("lake/",), (f"lake/data/{SLICE}/",)])
def test_an_empty_folder_does_not_prove_that_a_file_is_another_one(
    known: KnownFolders, tmp_path: Path, there: tuple[str, ...]
) -> None:
    mounted = tmp_path / "mnt"
    for folder in ("", *there):
        (mounted / folder).mkdir(parents=True, exist_ok=True)
    known = replace(known, mounts=(("local:///mnt/alias/", mounted.as_uri() + "/"),))
    for url in (f"local:///mnt/alias/lake/{KEY}", *([] if there else [f"local:///mnt/alias/{ID}"])):
        with pytest.raises(NamespaceError, match="is in an unknown folder"):
            known.key_or_outside(url)
    (mounted / "lake" / "data" / SLICE).mkdir(parents=True, exist_ok=True)
    (mounted / "lake" / "data" / SLICE / "neighbour").touch()
    assert (
        known.key_or_outside(f"local:///mnt/alias/lake/{KEY}") is None
    )  # an object of another repository, and deleted
    (mounted / "lake" / KEY).write_text("another")
    assert known.key_or_outside(f"local:///mnt/alias/lake/{KEY}") is None


@pytest.mark.parametrize("of_other", [(), folders_of("local://other", "file:///mnt/other")], ids=["own", "of another"])
def test_a_relative_address_may_climb_to_the_root_of_the_servers_disk(
    known: KnownFolders, of_other: tuple[str, ...]
) -> None:
    address = f"data/../../../../srv/lakefs/lake/{KEY}"
    batch = pa.record_batch({"address": [address], "address_type": pa.array([AddressType.RELATIVE], pa.int8())})
    assert known.entries(batch, of_other=of_other)["address"].to_pylist() == [KEY]
    # A server that does not reveal its folder may have it anywhere.
    unknown = replace(known, folders=known.folders[:2], server_folders=("local://lake/",))
    with pytest.raises(NamespaceError, match="is in an unknown folder"):
        unknown.entries(batch, of_other=of_other)
    # But it resolves a path within its folder.
    batch = batch.set_column(0, "address", pa.array([f"data/../../lake/{KEY}"]))
    assert unknown.entries(batch, of_other=of_other)["address"].to_pylist() == [KEY]


def test_another_prefix_of_a_bucket_is_outside() -> None:
    store = StoreLocation("s3://bucket/lake")
    known = KnownFolders("s3://bucket/lake/", store, ("s3://bucket/lake/",), (), ())
    assert known.key_or_outside(f"S3://bucket/lake/{KEY}") == KEY
    assert known.key_or_outside(f"s3://bucket/lake2/{KEY}") is None
    assert known.keys_of(f"s3://bucket/lake2/{KEY}") == ()
    assert known.keys_of(f"s3://bucket/lake/{KEY}") == (KEY,)
    assert {"data//s/a%20b", "data//s/a b", "data/s/a b"} <= {*known.keys_of("s3://bucket/lake/data//s/a%20b")}


AZURE = "https://account.blob.core.windows.net/container/"
FOLDERS = [
    ("s3://bucket/lake/",),
    ("s3://me@bucket/lake/", "s3://bucket/lake/"),
    ("s3://bucket/lake/", "s3://bucket/lake/data/"),
    ("gs://bucket/lake%2F/", "gs://bucket/lake//"),
    (AZURE,),
    ("local://lake/", "local:///srv/lake/"),
]
PARTS = st.one_of(
    st.sampled_from(["data", "s", "a", "x", "..", ".", "", " ", "lake", "lake2", "bucket", "%2e%2e", "a%20b", "%"]),
    st.sampled_from(["%4", "1?q=2", "é", "a+b", "container", "-_", "data%2Fs", "#", "srv"]),
)
STARTS = st.one_of(
    st.sampled_from(["s3://bucket/lake/", "S3://bucket/lake/", "s3://me@bucket/lake/", "s3:///bucket/lake/", "s3://"]),
    st.sampled_from([AZURE, AZURE.replace("account", "account-secondary"), "gs://bucket/lake%2F/", "s3://bucket/"]),
    st.sampled_from(["local://lake/", "local:///srv/lake/", "/", ""]),
)


@pytest.fixture(scope="module")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> StoreLocation:
    return StoreLocation(tmp_path_factory.mktemp("lake").as_uri())


@given(
    folders=st.sampled_from(FOLDERS),
    start=STARTS,
    parts=st.lists(PARTS, max_size=5),
    name=st.one_of(PARTS, st.text("ab0-_%/?.x", max_size=4)),
)
@settings(max_examples=1000, deadline=None)
def test_an_address_is_read_as_its_folder_is(
    empty_folder: StoreLocation, folders: tuple[str, ...], start: str, parts: list[str], name: str
) -> None:
    """What is remembered of a folder gives the same keys for each name, in the same order."""
    known = KnownFolders(folders[0], empty_folder, folders, (), ())
    url = start + "/".join([*parts, name])

    def outcome(read: Callable[[str], tuple[str, ...]]) -> object:
        try:
            return read(url)
        except NamespaceError as error:
            return error.message

    assert outcome(known.keys_of) == outcome(known._keys_of)


def test_what_is_remembered_of_folders_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_folders, "_FOLDERS_READ", {})
    monkeypatch.setattr(known_folders, "_MOST_FOLDERS", 3)
    known = KnownFolders("s3://bucket/lake/", StoreLocation("s3://bucket/lake"), ("s3://bucket/lake/",), (), ())
    for number in range(10):
        assert known.keys_of(f"s3://bucket/lake/data/{number}/a") == (f"data/{number}/a",)
        assert 1 <= len(known_folders._FOLDERS_READ) <= 3


def test_a_server_that_does_not_reveal_its_folder_is_refused(
    silent_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = silent_lake.repository()
    described = LakeFSClient(silent_lake.credentials).repository("lake")
    server = LakeFSClient(silent_lake.credentials)
    monkeypatch.setattr(server, "issued_address", lambda *_: "https://elsewhere/x")
    with pytest.raises(NamespaceError, match=r"server's folder of .* is unknown"):
        learn_folders(server, described, silent_lake.settings, repository.location)
