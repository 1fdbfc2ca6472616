"""Make the screenshots of the documentation: ``python -m lakefs_gc_tests.docs.screenshots [FOLDER]``.

Runs the demo with Dagster's UI, and takes each picture with headless Chromium at two widths: the wide ones are on the
pages of the documentation, the narrow ones (``*-narrow.png``) only show whether a page fits a small window. Default
folder: ``docs/pictures``, without the narrow ones.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lakefs_gc_tests.docs.generate import DOCS

_PORT = 3987
_UI_WIDTHS = {"": 1650, "-narrow": 1000}
_REPORT_WIDTHS = {"": 1200, "-narrow": 480}
_PATIENCE_SECONDS = 600
_LOAD_MILLISECONDS = 20_000
_ANSWER_SECONDS = 120
_PARTITIONS = (
    "query($key: AssetKeyInput!)"
    "{assetNodeOrError(assetKey:$key){... on AssetNode{assetMaterializations(limit:9){partition}}}}"
)
_LAUNCH = (
    "mutation($run: ExecutionParams!){launchRun(executionParams:$run){__typename"
    "... on PythonError{message}... on RunConfigValidationInvalid{errors{message}}}}"
)
_PLACE = {"repositoryLocationName": "lakefs_gc", "repositoryName": "__repository__"}


def take(folder: Path, *, narrow: bool) -> None:
    """Write the pictures to a folder. Without Chromium, say so before the demo takes minutes."""
    _chromium()
    folder.mkdir(parents=True, exist_ok=True)  # Chromium writes nothing to one that does not exist, and no error
    with tempfile.TemporaryDirectory() as place, _demo(Path(place)) as partition:
        _wait_for("forecast", partition)  # of the sensor forecast_after_mark
        _run("restore", partition)  # the demo restores on the command line, and only a part
        ui = f"http://127.0.0.1:{_PORT}/assets/"
        of_partition = f"view=partitions&partition={quote(partition, safe='')}"
        # Heights end before the rows with paths of the temporary folder.
        pages = {
            "mark-page": (f"{ui}mark?{of_partition}", 1900),
            "mark-checks": (f"{ui}mark?view=checks&checkDetail=share_of_objects", 950),
            "sweep-page": (f"{ui}sweep?{of_partition}", 1375),
            "restore-page": (f"{ui}restore?{of_partition}", 991),
            "forecast-page": (f"{ui}forecast?{of_partition}", 1655),
            "mark-report": (_report_of_newest_mark(Path(place)).as_uri(), 1900),
        }
        for name, (url, height) in pages.items():
            for suffix, width in (_UI_WIDTHS if url.startswith(ui) else _REPORT_WIDTHS).items():
                if narrow or not suffix:
                    picture(url, folder / f"{name}{suffix}.png", width, height)


def picture(url: str, file: Path, width: int, height: int) -> None:
    """Take a picture of a page with headless Chromium."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}"]
    options += [f"--virtual-time-budget={_LOAD_MILLISECONDS}", f"--screenshot={file}"]
    subprocess.run([_chromium(), *options, url], check=True, capture_output=True, timeout=180)


def _chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        raise SystemExit("Chromium is not installed. On Debian: apt-get install chromium")
    return program


def _report_of_newest_mark(place: Path) -> Path:
    """Return the report that waits for an approval. IDs of newer marks sort first."""
    return min(place.glob("lakefs-gc-demo-*/objects/**/lakefs-gc/report.html"))


@contextmanager
def _demo(place: Path) -> Iterator[str]:
    """Run the demo until its UI shows its marks. Give the partition of the first mark, which has expired objects."""
    command = [sys.executable, "-m", "lakefs_gc", "demo", "--ui", "--port", str(_PORT)]
    environment = {**os.environ, "TMPDIR": str(place)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        until = time.monotonic() + _PATIENCE_SECONDS
        partition = ""
        while not partition:
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit("the demo did not start its UI")
            time.sleep(2)
            with suppress(OSError, LookupError, TypeError, ValueError):  # the UI is not ready
                partition = _partitions("mark")[-1]
        yield partition
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # a background job may ignore SIGINT
        process.wait(60)


def _run(asset: str, partition: str) -> None:
    """Run the job of an asset in the UI, and wait until the asset is materialized."""
    job = f"gc_{asset}"
    tags = [{"key": "dagster/partition", "value": partition}]
    run = {"mode": "default", "selector": {**_PLACE, "jobName": job}, "executionMetadata": {"tags": tags}}
    launched = _ask(_LAUNCH, run=run)["launchRun"]
    if launched["__typename"] != "LaunchRunSuccess":
        raise SystemExit(f"{job} cannot be launched: {launched}")
    _wait_for(asset, partition)


def _wait_for(asset: str, partition: str) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while partition not in _partitions(asset):
        if time.monotonic() > until:
            raise SystemExit(f"{asset} was not materialized")
        time.sleep(2)


def _partitions(asset: str) -> list[str]:
    """Return the partitions of the materializations of an asset, newest first."""
    materializations = _ask(_PARTITIONS, key={"path": [asset]})["assetNodeOrError"]["assetMaterializations"]
    return [str(each["partition"]) for each in materializations]


def _ask(query: str, **variables: object) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{_PORT}/graphql",
        json.dumps({"query": query, "variables": variables}).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise SystemExit(f"Dagster answers {error.code}: {error.read().decode(errors='replace')[:2000]}") from error


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    take(given[0] if given else DOCS / "pictures", narrow=bool(given))
