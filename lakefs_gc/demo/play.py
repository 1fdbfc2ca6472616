"""Runs the demo: server, repository, mark, approval, sensor, sweep, verification."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lakefs_gc.config import CONFIG_VARIABLE, SafetyParameters, ServerCredentials, Settings
from lakefs_gc.demo import ui
from lakefs_gc.demo.story import REPOSITORY, LiveObject, Storyteller
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_parts import overview, read_part
from lakefs_gc.engine.records.stored_marks import Marked, open_mark, open_namespace
from lakefs_gc.engine.run import new_run_key
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import SafetyError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.pipeline.assets.sweep_approval import ApprovalConfig
from lakefs_gc.pipeline.session import GCSession
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.terminal.output import Output
from lakefs_gc.units import human_bytes

_BUCKET = "lakefs-gc-demo"
# A real server's grace period is a day. The demo can use a second, because no client uploads meanwhile.
_GRACE_SECONDS = 1
_MIN_AGE_HOURS = 2 / 3600
_WAIT_FOR_MIN_AGE_SECONDS = 3
_LANDING = "landing/prices.csv"


def play(out: Output, *, store: str, ui_port: int | None) -> None:
    """Run the demo with a ``local`` or ``s3`` store. With ``ui_port``, keep Dagster's UI open until interrupted.

    Raises ``SafetyError`` if one of its claims does not hold.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakefs-gc-demo-")))
        stage = Stage(folder, stack, store)
        out.say(
            f"1. Start a lakeFS-compatible server on {stage.credentials.endpoint_url} with a {store} store in {folder}"
        )
        for sentence in stage.storyteller.tell(stage.namespace, stage.lake, _LANDING, stage.landing_url):
            out.say(f"   {sentence}")
        time.sleep(_WAIT_FOR_MIN_AGE_SECONDS)
        with stage.session() as session:
            act = Act(stage, session, out)
            act.play()
            out.say(f"Done in {time.monotonic() - began:.0f} s.")
            if ui_port is None:
                return
            stage.storyteller.more_garbage()
            time.sleep(_WAIT_FOR_MIN_AGE_SECONDS)
            act.mark("5. Make a second mark, for you to approve in the UI")
        ui.serve(out, stage.environment, ui_port)


class Stage:
    """The servers of the demo, and the settings to reach them."""

    def __init__(self, folder: Path, stack: ExitStack, store: str) -> None:
        location, urls, environment = self._store(folder, stack, store)
        sandbox = stack.enter_context(
            SandboxServer(folder / "sandbox", location, options=SandboxOptions(grace_period_seconds=_GRACE_SECONDS))
        )
        self.credentials = ServerCredentials(
            endpoint_url=sandbox.endpoint_url,
            access_key_id=sandbox.access_key_id,
            secret_access_key=sandbox.secret_access_key,
        )
        self.namespace, self.landing_url = f"{urls}{REPOSITORY}", f"{urls}{_LANDING}"
        home = folder / "dagster"
        home.mkdir()
        mounts = {} if store == "s3" else {urls: location.folder_url}
        self.settings = Settings(
            repositories=(REPOSITORY,),
            mounts=mounts,
            work_url=f"file://{home}/work",
            # Only the demo commits, and it waits for its commits.
            safety=SafetyParameters(min_age_hours=_MIN_AGE_HOURS, longest_commit_minutes=0),
            spark=_SPARK,
        )
        self.environment = {
            **environment,
            "DAGSTER_HOME": str(home),
            CONFIG_VARIABLE: str(ui.write_settings(home, self.settings)),
            "LAKECTL_SERVER_ENDPOINT_URL": self.credentials.endpoint_url,
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": self.credentials.access_key_id,
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": self.credentials.secret_access_key,
        }
        stack.enter_context(_environment(self.environment))
        self.lake = open_store(location)
        self.server = LakeFSClient(self.credentials)
        self.storyteller = Storyteller(self.credentials, folder / "upload")

    @staticmethod
    def _store(folder: Path, stack: ExitStack, kind: str) -> tuple[StoreLocation, str, Mapping[str, str]]:
        """Return the location of the objects, the URL prefix of namespaces, and the environment variables they need."""
        if kind == "s3":
            weed = stack.enter_context(SeaweedFS(folder / "s3"))
            weed.client().create_bucket(Bucket=_BUCKET)
            stack.enter_context(_environment(weed.environment))
            return StoreLocation(f"s3://{_BUCKET}/"), f"s3://{_BUCKET}/", weed.environment
        objects = folder / "objects"
        objects.mkdir()
        return StoreLocation(f"file://{objects}/"), "local://", {}

    @contextmanager
    def session(self) -> Iterator[GCSession]:
        """Open a session whose runs the UI shows later."""
        with GCSession.open(self.settings) as session:
            yield session

    def open(self, mark_id: str) -> Marked:
        """Open a mark of the demo's repository."""
        return open_mark(REPOSITORY, mark_id, self.server, self.settings)


# Small data needs few partitions and little memory.
_SPARK = {"spark.sql.shuffle.partitions": "4", "spark.driver.memory": "1g"}


class Act:
    """The steps of the demo on its servers."""

    def __init__(self, stage: Stage, session: GCSession, out: Output) -> None:
        self._stage, self._session, self._out = stage, session, out

    def play(self) -> None:
        """Mark, approve, have the sensor start the sweep, and verify the result."""
        story = self._stage.storyteller
        history = story.addresses_in_history()
        live = list(story.live_objects())
        store = open_namespace(REPOSITORY, self._stage.server, self._stage.settings).store
        before_bytes = _stored_bytes(store)
        marked = self.mark("2. Mark: list the store, read all references, and record the unreferenced objects")
        self._out.show_overview(overview(marked.store, marked.mark))
        self._out.say("3. Approve the mark. The sensor finds the approval and starts the sweep")
        run_key = marked.mark.run_key
        self._session.approve(
            run_key, ApprovalConfig(mark_id=marked.mark.mark_id, digest=marked.mark.digest, approved_by="the demo")
        )
        with self._out.progress("sweeping"):
            self._session.sweep_approved()
        outcomes = self._outcomes(marked)
        self._out.show_outcomes(outcomes)
        self._out.say("4. Verify")
        self._verify(live, history, marked, before_bytes - _stored_bytes(store))

    def mark(self, headline: str) -> Marked:
        """Make a mark, and show it."""
        self._out.say(headline)
        with self._out.progress("marking"):
            facts = self._session.mark(new_run_key(REPOSITORY, utc_now()))
        marked = self._stage.open(facts["mark_id"])
        self._out.show_mark(marked.mark)
        return marked

    def _outcomes(self, marked: Marked) -> dict[str, dict[str, int]]:
        content = json.loads(marked.store.read(MarkPaths.of(marked.mark.mark_id).sweep_summary))
        outcomes: dict[str, dict[str, int]] = content["outcomes"]
        return outcomes

    def _verify(
        self, live: list[LiveObject], history: Mapping[str, tuple[str, str]], marked: Marked, freed_bytes: int
    ) -> None:
        story = self._stage.storyteller
        unchanged = sum(story.checksum(o.ref, o.path) == o.sha256 for o in live)
        self._claim(unchanged == len(live), f"{unchanged} of {len(live)} live objects are readable and unchanged")
        swept = _addresses(marked.mark, marked.store)
        expired = [where for address, where in history.items() if address.removeprefix(self._prefix) in swept]
        gone = sum(story.is_gone(commit, path) for commit, path in expired)
        self._claim(
            gone == len(expired) > 0,
            f"lakeFS's API answers 410 Gone for {gone} of {len(expired)} deleted paths of expired commits",
        )
        remaining = marked.store.stat_many(sorted(swept))
        self._claim(not remaining, f"{len(swept)} deleted objects are no longer in the store")
        expected = marked.mark.candidate_bytes or 0
        self._claim(freed_bytes == expected, f"{human_bytes(freed_bytes)} were freed, as the mark predicted")

    @property
    def _prefix(self) -> str:
        return self._stage.namespace + "/"

    def _claim(self, holds: bool, claim: str) -> None:
        self._out.say(f"   {'✓' if holds else '✗'} {claim}")
        if not holds:
            raise SafetyError(f"the demo could not verify: {claim}", remedy="please report this with the output above")


def _addresses(mark: Mark, store: ObjectStore) -> set[str]:
    return {address for part in mark.parts for address in read_part(store, part)["address"].to_pylist()}


def _stored_bytes(store: ObjectStore) -> int:
    return sum(sum(batch.column("size").to_pylist()) for batch in store.list("data/"))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for this process and its child processes, and restore the former values at the end."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
