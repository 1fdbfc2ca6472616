"""Each answer about each object of a known history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from lakefs_gc.config import BackupSettings, Protections, SafetyParameters, Settings
from lakefs_gc.engine.explain import sources
from lakefs_gc.engine.explain.answers import Explanation, KeptBy, State
from lakefs_gc.engine.explain.explain import explain
from lakefs_gc.engine.explain.sources import Sources, open_sources
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.workspace.fingerprints import fingerprints
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.ranges import read_range
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.known_history import ERASED, LIVES, MAIN_LINE, KnownHistory, several

pytestmark = pytest.mark.long(60)

Open = Callable[..., Sources]


@pytest.fixture
def open_(history: KnownHistory, answer_settings: Settings) -> Open:
    def open_(**changes: object) -> Sources:
        settings = answer_settings.model_copy(update=changes)
        server = LakeFSClient(history.repository.lake.credentials)
        return open_sources("lake", server, settings, Workspace(settings.resolved_work_url()))

    return open_


@pytest.fixture(scope="module")
def answers(history: KnownHistory, answer_settings: Settings) -> dict[str, Explanation]:
    server = LakeFSClient(history.repository.lake.credentials)
    sources = open_sources("lake", server, answer_settings, Workspace(answer_settings.resolved_work_url()))
    return dict(zip(history.keys, explain(sources, history.keys.values()), strict=True))


KEPT: dict[str, set[KeptBy]] = {
    "always": {KeptBy.HEAD, KeptBy.COMMIT},
    "two-paths": {KeptBy.HEAD, KeptBy.COMMIT},
    "replaced-on-main": {KeptBy.HEAD, KeptBy.COMMIT},
    "on-idle-head": {KeptBy.HEAD},
    **{name: {KeptBy.COMMIT} for name in several("of-branch-deleted-lately")},
    "until-in-20-days": {KeptBy.COMMIT},
    "twin-of": {KeptBy.HEAD},
    "twin": {KeptBy.HIDDEN_TWIN},
    "imported": {KeptBy.OTHER_REPOSITORY},
    **{name: {KeptBy.STAGED} for name in several("staged")},
    "new": {KeptBy.TOO_NEW},
    "restored": {KeptBy.TOO_NEW},
    "not-lakefs": {KeptBy.NEVER_COLLECTED},
    "elsewhere": {KeptBy.NEVER_COLLECTED},
}
REASONS = {
    "expired": "expired",
    **dict.fromkeys((*several("idle-replaced"), *several("of-branch-deleted-long-ago")), "expired"),
    **dict.fromkeys((*several("never-committed"), *several("stray")), "never_committed"),
}
RETENTION_DAYS = 30
"""Of main."""
for _name, (_start, _end) in LIVES.items():
    # A commit is active until its child on main is older than the rule. The head of exp-7 has what c80 has.
    _shown = MAIN_LINE[MAIN_LINE.index(_start) : MAIN_LINE.index(_end) if _end else None]
    _children = [MAIN_LINE[MAIN_LINE.index(commit) + 1] for commit in _shown if commit != MAIN_LINE[-1]]
    _by = {KeptBy.HEAD} if "c80" in _shown or not _end else set()
    if "c80" in _shown or any(int(child[1:]) < RETENTION_DAYS for child in _children):
        _by.add(KeptBy.COMMIT)
    if _by:
        KEPT[_name] = _by
    else:
        REASONS[_name] = "expired"


def test_the_state_of_each_object(history: KnownHistory, answers: dict[str, Explanation]) -> None:
    states = {name: answer.state for name, answer in answers.items()}
    expected = dict.fromkeys(KEPT, State.KEPT) | dict.fromkeys(REASONS, State.MARKED)
    assert states == expected | {"erased": State.DELETED, "erased-too": State.DELETED}
    assert {name: {keeper.by for keeper in answers[name].kept_by} for name in KEPT} == KEPT
    assert all(not answers[name].kept_by for name in REASONS)
    assert all(answer.not_looked_at == () for answer in answers.values())
    assert "9 commits of 2 branches and 1 tag" in answers["always"].looked_at[0]


def test_fifty_objects_of_a_known_history(history: KnownHistory, answers: dict[str, Explanation]) -> None:
    """Each life on main: where it began, which commit ended it, and how many commits show it."""
    assert len(answers) == len(history.keys) >= 50
    for name, (start, end) in LIVES.items():
        shown = MAIN_LINE[MAIN_LINE.index(start) : MAIN_LINE.index(end) if end else None]
        # exp-7 has two commits after c80, and the branch that was deleted lately has one.
        commits = len(shown) + 3 * ("c80" in shown)
        [path] = answers[name].paths
        assert path.first, name
        assert (path.path, path.commits, path.first.id) == (f"lives/{name}", commits, history.commits[start]), name
        assert [commit.id for commit in path.ended_by] == ([history.commits[end]] if end else []), name
        assert answers[name].size_bytes == len(f"content of {name}"), name
        if name in REASONS:
            assert "within the 30 days of the rule of branch `main`" in answers[name].expired, name
            assert path.last, name
            assert path.last.id == history.commits[shown[-1]], name
    [kept] = answers["from-c20-to-c10"].kept_by
    assert kept.until is not None
    assert timedelta(days=19) < kept.until - answers["new"].last_modified < timedelta(days=21)  # type: ignore[operator]


def test_who_keeps_an_object_and_until_when(history: KnownHistory, answers: dict[str, Explanation]) -> None:
    assert answers["on-idle-head"].kept_until == "never: head of branch `exp-7`, no commit for 60 days"
    [kept] = answers["until-in-20-days"].kept_by
    assert kept.until is not None
    assert timedelta(days=19) < kept.until - answers["new"].last_modified < timedelta(days=21)  # type: ignore[operator]
    assert "within the 30 days of the rule of branch `main`" in kept.what
    [kept] = answers["of-branch-deleted-lately"].kept_by
    assert kept.until is not None
    assert timedelta(days=8) < kept.until - answers["new"].last_modified < timedelta(days=10)  # type: ignore[operator]
    assert "commit of a deleted branch, within the default retention of 14 days" in kept.what
    assert answers["twin"].kept_by[0].what.startswith("branch `main` shows it at twin")
    assert answers["staged"].kept_by[0].what == "branch `main` shows it at staged, not committed"
    assert answers["imported"].kept_by[0].what.startswith("repository other refers to it (run lake/")
    assert any(note.startswith("tag v1 shows it") for note in answers["replaced-on-main"].notes)


def test_why_an_object_is_garbage(history: KnownHistory, answers: dict[str, Explanation]) -> None:
    assert history.waiting
    for name, reason in REASONS.items():
        [mark] = answers[name].marks
        assert (mark.mark_id, mark.reason, mark.outcome) == (history.waiting.mark_id, reason, None)
        assert any("other repositories: all" in note for note in answers[name].notes)
    expired = answers["expired"]
    [path] = expired.paths
    assert path.first
    assert path.last
    shown = (path.path, path.commits, path.first.id, path.last.id, path.first.branch)
    assert shown == ("table/part-0", 1, history.commits["c100"], history.commits["c100"], "main")
    assert [commit.id for commit in path.ended_by] == [history.commits["c90"]]
    assert "within the 30 days of the rule of branch `main`" in expired.expired
    assert expired.would_keep[0] == "a retention of branch `main` of at least 91 days, now 30 days"
    assert expired.would_keep[1].endswith(history.commits["c100"])
    assert "14 days of the default rule, which applies to branch `exp-7`" in answers["idle-replaced"].expired
    [path] = answers["of-branch-deleted-long-ago"].paths
    assert (path.path, path.commits) == ("of-deleted-long-ago", 0)
    assert answers["never-committed"].notes[0].startswith("no commit that can be read has it")


def test_the_commits_that_show_an_object(history: KnownHistory, answers: dict[str, Explanation]) -> None:
    assert [path.path for path in answers["two-paths"].paths] == ["one-path", "other-path"]
    assert {path.commits for path in answers["two-paths"].paths} == {8}
    [path] = answers["replaced-on-main"].paths
    assert path.first
    assert path.first.id == history.commits["c90"]
    assert path.commits == 6  # c90, c80, c20, e70, e60 and the commit of the branch that was deleted lately
    assert [commit.id for commit in path.ended_by] == [history.commits["c10"]]


def test_what_deleted_an_object(history: KnownHistory, answers: dict[str, Explanation]) -> None:
    assert history.swept
    for name in ERASED:
        [mark] = answers[name].marks
        assert mark.mark_id == history.swept.mark_id
        assert mark.outcome
        assert mark.outcome.outcome == "deleted"
        assert (mark.restored_at is not None) == (name == "restored")
        assert len(answers[name].copies) == 1
        assert history.swept.mark_id in answers[name].copies[0]


def test_the_run_has_indexed_the_active_ranges(history: KnownHistory, open_: Open) -> None:
    """So the first question after a run reads few ranges."""
    read = open_().history
    folder, prints_of = history.index
    assert folder == read.index.folder
    active = [range_id for range_id in read.ranges if range_id in prints_of]
    assert len(active) == 5  # of 8: the others are of expired commits
    for range_id in active:
        entries = read.known.entries(read_range(read.store.read(f"_lakefs/{range_id}"), range_id))
        assert prints_of[range_id] == fingerprints(entries.column("address")).tolist()


def test_the_ways_to_name_an_object(history: KnownHistory, open_: Open) -> None:
    key = history.keys["staged"]
    names = [key, f"local://lake/{key}", "lakefs://lake/main/staged", "lakefs://lake/main/nothing"]
    *same, nothing = explain(open_(), names)
    assert {answer.address for answer in same} == {key}
    assert nothing.state is State.NOT_SHOWN
    [other] = explain(open_(), [f"lakefs://lake/{history.commits['c100']}/people/anna.csv"])
    assert (other.address, other.state) == (history.keys["erased"], State.DELETED)
    for wrong in ("local://other/data/x", "lakefs://other/main/x", "lakefs://lake/main"):
        with pytest.raises(ConfigurationError):
            explain(open_(), [wrong])
    [refused, beside] = explain(open_(), ["data/../x", key])
    assert (refused.state, beside.state) == (State.UNKNOWN, State.KEPT)
    assert refused.not_looked_at[0].startswith("data/../x: the store could not be asked for this key")


@pytest.mark.parametrize("limit", ["_MAX_CHANGES", "_MAX_LOOKUPS", "_MAX_HEAD_RANGES"])
def test_what_takes_long_is_looked_up_if_that_is_asked_for(
    history: KnownHistory, open_: Open, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(sources, limit, 0)
    keys = [history.keys[name] for name in ("staged", "twin")]
    quick, thorough = (explain(open_(), keys, thorough=thorough) for thorough in (False, True))
    left = {"_MAX_CHANGES": {"staged objects"}, "_MAX_HEAD_RANGES": {"hidden twins"}}.get(
        limit, {"staged objects", "hidden twins"}
    )
    named = [each for each in quick[0].not_looked_at if each.endswith("`--thorough` looks at all of them")]
    assert {each.partition(" since the last run: ")[0] for each in named} == left
    assert not any("since the last run" in each for each in thorough[0].not_looked_at)
    assert [each.kept_by[0].by for each in thorough] == [KeptBy.STAGED, KeptBy.HIDDEN_TWIN]
    # What the last run saw is an answer, too.
    assert [each.kept_by[0].by for each in quick] == [KeptBy.STAGED, KeptBy.HIDDEN_TWIN]


def test_a_lost_object_that_was_staged_after_the_last_run_is_missing(
    history: KnownHistory, open_: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size is unknown, so all that is staged is looked up. What no branch shows is only not in the store."""
    repository = history.repository
    key, stray = repository.put("lost", "size of no other object"), repository.put_stray("data/s/stray")
    repository.store.delete_many([key, stray])
    try:
        [lost, not_shown] = explain(open_(), [key, stray])
        monkeypatch.setattr(sources, "_MAX_LOOKUPS", 0)
        quick, thorough = (explain(open_(), [key], thorough=thorough)[0] for thorough in (False, True))
    finally:
        repository.delete("lost")
    assert (lost.state, not_shown.state) == (State.MISSING, State.NOT_IN_STORE)
    assert [keeper.by for keeper in lost.kept_by] == [KeptBy.STAGED]
    assert (quick.state, thorough.state) == (State.NOT_IN_STORE, State.MISSING)
    assert "more than 0 changes may show a lost object. `--thorough` looks at all of them" in quick.not_looked_at[-1]


def test_settings_protect(history: KnownHistory, open_: Open) -> None:
    protect = Protections(tags=("v*",), path_prefixes=("table/",))
    protected = open_(safety=SafetyParameters(protect=protect))
    [tagged, below] = explain(protected, [history.keys["replaced-on-main"], history.keys["expired"]])
    assert KeptBy.PROTECTED_COMMIT in {keeper.by for keeper in tagged.kept_by}
    assert {keeper.by for keeper in below.kept_by} == {KeptBy.PROTECTED_PATH}


def test_what_could_not_be_looked_at_is_said(history: KnownHistory, open_: Open) -> None:
    elsewhere = (history.repository.lake.folder / "another-workspace").as_uri()
    names = [history.keys[name] for name in ("imported", "of-branch-deleted-lately")]
    imported, dangling = explain(open_(work_url=elsewhere, backup=BackupSettings()), names)
    assert imported.state is State.UNREFERENCED
    assert dangling.state is State.UNREFERENCED
    for what in ("other repositories", "commits of deleted branches", "hidden twins", "backups"):
        assert any(each.startswith(what) for each in imported.not_looked_at), what


def test_a_damaged_file_is_said(history: KnownHistory, open_: Open) -> None:
    """The last test that needs the files: it damages some, and puts them back."""
    assert history.swept
    store = history.repository.store
    metarange = history.repository.metadata_file(history.repository.metarange_of(history.commits["c100"]))
    manifest = MarkPaths.of(history.swept.mark_id).manifest
    kept = {key: store.read(key) for key in (metarange, manifest)}
    try:
        store.delete_many([metarange])
        store.put(manifest, b"{}")
        [answer] = explain(open_(), [history.keys["expired"]])
    finally:
        for key, content in kept.items():
            store.put(key, content)
    [path] = answer.paths
    assert path.commits == 0  # the range is still there, but no metarange that could be read names it
    assert any(each.startswith(f"commit {history.commits['c100']}") for each in answer.not_looked_at)
    assert any(each.startswith(f"mark {history.swept.mark_id}") for each in answer.not_looked_at)
