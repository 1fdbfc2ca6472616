"""Which URLs name a store, and where S3's requests go."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage.azure.store import AzureStore
from lakefs_gc.storage.gcs.store import GCSStore
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.s3.client import _loader, new_clients
from lakefs_gc.storage.s3.store import S3Store


@pytest.mark.parametrize(
    ("url", "bucket", "root"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://bucket/a/b", "bucket", "a/b/"),
        ("s3://bucket/a/b///", "bucket", "a/b/"),
        ("s3://bucket/a%20b?c#d", "bucket", "a%20b?c#d/"),
    ],
)
def test_places_in_s3(url: str, bucket: str, root: str) -> None:
    store = open_store(StoreLocation(url))
    assert isinstance(store, S3Store)
    assert (store.bucket, store.root) == (bucket, root)


@pytest.mark.parametrize(
    ("url", "account", "container", "root"),
    [
        ("https://me.blob.core.windows.net/c", "me", "c", ""),
        ("https://me.blob.core.windows.net/c/a%20b/", "me", "c", "a b/"),
        ("http://ME.blob.core.chinacloudapi.cn//c/a", "me", "c", "a/"),
    ],
)
def test_places_in_azure(url: str, account: str, container: str, root: str) -> None:
    store = open_store(StoreLocation(url))
    assert isinstance(store, AzureStore)
    assert (store.folder.account, store.folder.container, store.root) == (account, container, root)


@pytest.mark.parametrize(
    ("url", "bucket", "root"),
    [
        ("gs://bucket", "bucket", ""),
        ("GS://bucket/a%20b/", "bucket", "a b/"),
        ("gs://bucket/a%2Fb", "bucket", "a%2Fb/"),
    ],
)
def test_places_in_google_s_store(url: str, bucket: str, root: str) -> None:
    store = open_store(StoreLocation(url))
    assert isinstance(store, GCSStore)
    assert (store.folder.bucket, store.root) == (bucket, root)


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [("https://me.blob.core.windows.net/c/repo", "azure", "azure"), ("gs://bucket/repo", "google", "gcs")],
)
def test_without_the_sdk_an_error_names_the_extra(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith((package, f"lakefs_gc.storage.{extra}"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"pip install 'lakefs-gc\[{extra}\]'"):
        open_store(StoreLocation(url))


def test_places_on_this_machine(tmp_path: Path) -> None:
    for end in ("", "/", "//"):
        store = open_store(StoreLocation(f"file://{tmp_path}/a b%20{end}"))
        assert isinstance(store, LocalStore)
        assert store.folder.path == tmp_path / "a b%20"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://", "bucket"),
        ("s3:///prefix", "bucket"),
        ("s3://bucket//x", "empty"),
        ("s3://bucket/../x", "part"),
        ("file://", "folder"),
        ("file:///", "folder"),
        ("file://relative/folder", "folder"),
        ("azure://account/container", "https://ACCOUNT.blob.core.windows.net/container/path"),
        ("abfss://container@account.dfs.core.windows.net/x", "https://ACCOUNT.blob.core.windows.net/container/path"),
        ("wasbs://container@account.blob.core.windows.net/x", "https://ACCOUNT.blob.core.windows.net/container/path"),
        ("https://account.blob.core.windows.net/", "container"),
        ("gs://", "gs://bucket/path"),
        ("gs://bucket/a//b", "empty"),
        ("mem://x", "s3://"),
        ("local://x", "s3://"),
        ("", "s3://"),
        ("/data/folder", "file:///"),
    ],
)
def test_what_is_no_place(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(StoreLocation(url))
    assert says in str(caught.value)


def sent_to(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    lister, rest, _ = new_clients()
    urls = {url_of(lister.list_objects_v2, lister), url_of(rest.list_objects_v2, rest)}
    assert len(urls) == 1
    return urls.pop()


def url_of(call: Any, client: Any) -> str:
    """The URL, without the query, of the request that a call would send."""

    class Stop(Exception):  # noqa: N818
        pass

    def stop(request: Any, **_: Any) -> None:
        raise Stop(request.url)

    client.meta.events.register("before-send.s3", stop)
    with pytest.raises(Stop) as caught:
        call(Bucket="bkt", Prefix="k")
    return str(caught.value).partition("?")[0]


def test_clients_share_what_botocore_knows_of_services(monkeypatch: pytest.MonkeyPatch) -> None:
    sent_to(monkeypatch)
    paths = list(_loader().search_paths)
    lister, rest, _ = new_clients()
    assert lister._service_model.metadata is rest._service_model.metadata
    assert _loader().search_paths == paths


def test_where_requests_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert sent_to(monkeypatch) == "https://bkt.s3.amazonaws.com/"
    assert sent_to(monkeypatch, AWS_DEFAULT_REGION="eu-west-1") == "https://bkt.s3.eu-west-1.amazonaws.com/"
    assert sent_to(monkeypatch, AWS_ENDPOINT_URL="http://minio:9000") == "http://minio:9000/bkt"
    assert sent_to(monkeypatch, AWS_ENDPOINT_URL_S3="https://s3.example.com") == "https://s3.example.com/bkt"
    (tmp_path / "config").write_text("[default]\ns3 =\n  addressing_style = virtual\n")
    assert sent_to(monkeypatch, AWS_ENDPOINT_URL_S3="https://s3.example.com") == "https://bkt.s3.example.com/"
