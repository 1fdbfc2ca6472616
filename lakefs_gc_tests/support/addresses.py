"""Addresses of objects, grouped by the expected result of the address rules."""

from __future__ import annotations

CANDIDATES = [
    "data/slice/object",
    "data/slice/object,signature",
    "data/x",
    "data/dummy",
    "data/_lakefs/x",
    "data/a/b/c",
    "data/...",
    "data/.hidden/x",
    "data/a\nb",
    "dummy2",
    "_lakefs.txt",
    "_lakefs_backup",
    "data2",
    "root object",
    "pct%20a",
    "%2e%2e",
    "a?b#c;d&<>\"'\\",
    "trailing ",
    "...",
    "e\u0301",
    "tab\there",
    "line\n",
    "dummy\n",
    "😀",
]
OTHERS = [
    "",
    "dummy",
    "data",
    "data/",
    "data//x",
    "data/a//b",
    "data/a/",
    "data/./x",
    "data/../x",
    "data/a/..",
    "data/a/.",
    "data/..",
    "_lakefs",
    "_lakefs/",
    "_lakefs/retention/x",
    "_lakefs/../data/x",
    "other/x",
    "other/data/x",
    "Data/x",
    "/data/x",
    "/root",
    "/",
    ".",
    "..",
    "../x",
    "./data/x",
    "s3://bucket/x",
    "marker/",
    "\n/x",
]
HEX, XID = "4024870a35b7869697429ebc31187143", "dc0gu11ksdual6uirqo0"
ISSUED = [
    HEX,
    "0" * 32,
    XID,
    "dc0gu11ksdual6uirqog",
    f"{HEX}-00001",
    *(f"{id_}{suffix}" for id_ in (HEX, XID) for suffix in (".part_00017", ".multipart", "_id", "_size")),
    f"{XID}.part_00001_1_2",
]
UNRECOGNIZED = [
    "terraform.tfstate",
    "README.md",
    "root",
    "_lakefs.txt",
    "dummy\n",
    "data.txt",
    "0f8fad5b-d9cb-469f-a165-70867728950e",  # a UUID in a form that lakeFS never writes
    HEX.upper(),
    HEX[:-1],
    f"{HEX}0",
    f"{HEX}\n",
    f"{HEX}.csv",
    f"{HEX}-1",
    f"{HEX}_ids",
    f"{XID[:-1]}1",  # the last character of an xid has only one bit
    f"{XID}-00001",
    f"{XID}.part_00001_",
    f"{XID},{'a' * 43}",
    "datasetnamingcatalog",  # a word
    "terraformstatebackup",
    "zc0gu11ksdual6uirqo0",
]
SIGNATURE = "aB3_-" * 8 + "xyz"
SLICE = "gqg0gu11ksdual6uirqo"
ISSUED_IN_DATA = [
    f"data/{SLICE}/{XID}",
    f"data/{SLICE}/{HEX}",
    f"data/{SLICE}/{XID},{SIGNATURE}",
    f"data/!ab/c/{SLICE}/{XID}",
    f"data/{SLICE}/{XID}.part_00017",
    f"data/{SLICE}/{XID}.part_00001_1",
    f"data/{SLICE}/{XID},{SIGNATURE}_size",
]
CHOSEN = [
    *(address for address in CANDIDATES if address.startswith("data/")),
    f"data/{XID}",
    f"data/ab/c/{SLICE}/{XID}",
    f"data/{SLICE}/{XID}/x",
    f"data/{SLICE}/{XID}\n",
    f"data/{SLICE}/{XID}.csv",
    f"data/{SLICE}/{XID},{SIGNATURE[1:]}",
    f"data/{SLICE}/{XID[:-1]}1",  # the last character of an xid has only one bit
    f"data/{SLICE}0/{XID}",
    f"data/{SLICE.upper()}/{XID}",
]
