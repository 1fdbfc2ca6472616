"""Which account a URL of Azure names, and where requests about it go."""

from __future__ import annotations

import pytest

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage.azure.access import BlobFolder, blob_folder, find_access

HOST = "acct.blob.core.windows.net"
FOLDER = BlobFolder("acct", HOST, "c", "")
KEY = {"AZURE_STORAGE_ACCOUNT": "acct", "AZURE_STORAGE_KEY": "a2V5"}


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        (f"https://{HOST}/c", FOLDER),
        ("HTTPS://ACCT.blob.core.windows.net:443//c/a/b//", BlobFolder("acct", HOST, "c", "a/b/")),
        (f"https://{HOST}/c/my%20repo", BlobFolder("acct", HOST, "c", "my repo/")),
        (f"https://{HOST}/c/a+b#d", BlobFolder("acct", HOST, "c", "a+b#d/")),
        ("https://acct.blob.core.chinacloudapi.cn/c", BlobFolder("acct", "acct.blob.core.chinacloudapi.cn", "c", "")),
        ("https://acct.dfs.core.windows.net/c/a/b", BlobFolder("acct", "acct.dfs.core.windows.net", "c", "a/b/")),
    ],
)
def test_what_a_url_names(url: str, folder: BlobFolder) -> None:
    assert blob_folder(url) == folder


@pytest.mark.parametrize(
    "url",
    [
        "https://",
        f"https://{HOST}",
        f"https://{HOST}/",
        f"https://{HOST}/c/../d",
        f"https://{HOST}/c/a//b",
        f"https://{HOST}/c?x",
        f"https://me:pw@{HOST}/c",
        "https://localhost/c",
        f"https://{HOST}/c/%ff",
        "abfss://c@acct.dfs.core.windows.net/a/b",
    ],
)
def test_what_names_no_folder(url: str) -> None:
    with pytest.raises(ConfigurationError):
        blob_folder(url)


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        (f"https://{HOST}/c", f"https://{HOST}"),
        ("http://acct.blob.core.usgovcloudapi.net/c", "https://acct.blob.core.usgovcloudapi.net"),
        ("https://acct.dfs.core.windows.net/c", f"https://{HOST}"),
        ("https://acct.z12.blob.storage.azure.net/c", "https://acct.z12.blob.storage.azure.net"),
    ],
)
def test_the_endpoint_of_a_host_of_azure(url: str, endpoint: str) -> None:
    assert find_access(blob_folder(url), KEY).endpoint == endpoint


@pytest.mark.parametrize("host", ["acct.example.com", "acct-secondary.blob.core.windows.net", "acct.azurite.test"])
def test_no_credentials_are_sent_to_other_hosts(host: str) -> None:
    with pytest.raises(ConfigurationError, match="no credentials are sent to it"):
        find_access(blob_folder(f"https://{host}/c"), {})


def test_variables_are_for_the_account_that_they_name() -> None:
    endpoint = {**KEY, "AZURE_STORAGE_SERVICE_ENDPOINT": "http://127.0.0.1:1/acct/"}
    assert find_access(FOLDER, endpoint).endpoint == "http://127.0.0.1:1/acct"
    other = find_access(blob_folder("https://other.blob.core.windows.net/c"), endpoint)
    assert other.endpoint == "https://other.blob.core.windows.net"
    assert not isinstance(other.credential, dict)


@pytest.mark.parametrize(
    "variables",
    [
        {"AZURE_STORAGE_KEY": "a2V5"},
        {"AZURE_STORAGE_SERVICE_ENDPOINT": "http://127.0.0.1:1/acct"},
        {**KEY, "AZURE_STORAGE_SERVICE_ENDPOINT": "http://127.0.0.1:1/other"},
        {**KEY, "AZURE_STORAGE_SERVICE_ENDPOINT": "https://other.blob.core.windows.net"},
        {**KEY, "AZURE_STORAGE_SERVICE_ENDPOINT": f"https://{HOST}/?sig=x"},
        {"AZURE_STORAGE_CONNECTION_STRING": "AccountKey=secret"},
    ],
)
def test_variables_that_could_lead_to_another_account_are_refused(variables: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_access(FOLDER, variables)
    assert "secret" not in str(caught.value)


def test_connection_strings_and_signatures() -> None:
    text = "AccountName=acct;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/acct"
    access = find_access(FOLDER, {"AZURE_STORAGE_CONNECTION_STRING": text})
    assert (access.endpoint, access.credential) == (
        "http://127.0.0.1:1/acct",
        {"account_name": "acct", "account_key": "a2V5"},
    )
    variables = {"AZURE_STORAGE_ACCOUNT": "acct", "AZURE_STORAGE_SAS_TOKEN": "?sig=x"}
    assert find_access(FOLDER, variables).sas == "sig=x"
