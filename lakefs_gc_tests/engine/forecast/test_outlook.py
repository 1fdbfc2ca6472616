"""The arithmetic of a forecast, against the definition of active commits, on random histories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from lakefs_gc.engine.forecast.commit_holds import DEFAULT, Hold, classes_of, hold_commits, whole_days
from lakefs_gc.engine.forecast.outlook import (
    HEAD,
    HEADS,
    NEVER_COMMITTED,
    NEW,
    NONE,
    PROTECT_DAYS,
    RULES,
    Branch,
    Forecast,
    Row,
    Total,
    curve,
    only_heads,
    only_this_branch,
    outlook,
)
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.lakefs.active_commits import Commit, active_commits

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
BRANCHES = ("main", "dev", "old")


def row(held_by: str = NONE, *ages: int | None, new_days: int = -1, unseen: bool = False, size: int = 1) -> Row:
    return Row(held_by, 0 if held_by == HEAD else None, ages, new_days, unseen, Total(1, size))


def forecast(
    *rows: Row, classes: tuple[str, ...] = (DEFAULT,), rules: GCRules | None = None, branches: int = 1
) -> Forecast:
    return Forecast(classes, rows, [Branch(f"b{n}", "head", 5, Total(9, 90)) for n in range(branches)], rules)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Commit], dict[str, str], list[set[str]]]:
    """Return commits, heads, and the commits that have each object."""
    size = draw(st.integers(1, 12))
    ids = draw(st.permutations([chr(ord("a") + i) for i in range(size)]))
    commits = []
    for number, name in enumerate(ids):
        parents = draw(st.lists(st.sampled_from(ids[:number]), max_size=2, unique=True)) if number else []
        # Seconds beside whole days: what is exactly as old as the retention is outside of it.
        age = timedelta(days=draw(st.integers(-1, 12)), seconds=draw(st.sampled_from([-1, 0, 1, 4000])))
        commits.append(Commit(name, tuple(parents), NOW - age, f"m{name}", draw(st.integers(0, 1))))
    names = draw(st.lists(st.sampled_from(BRANCHES), min_size=1, unique=True))
    heads = {name: draw(st.sampled_from(ids)) for name in names}
    return commits, heads, draw(st.lists(st.sets(st.sampled_from(ids), min_size=1), max_size=6))


days = st.integers(-1, 14)
rules = st.builds(GCRules, days, st.dictionaries(st.sampled_from([*BRANCHES, "gone"]), days, max_size=3))


def forecast_of_history(commits: list[Commit], heads: dict[str, str], objects: list[set[str]]) -> Forecast:
    """Return the forecast of objects of one byte each, as the stage computes it."""
    holds = hold_commits({c.id: c for c in commits}, heads, classes_of(heads, BRANCHES), NOW)
    names = sorted(heads)
    rows = []
    for having in objects:
        hold = Hold((None,) * (1 + len(heads)))
        for commit in having:
            hold = hold.merged(holds[commit])
        branch = names.index(next(iter(hold.heads))) if len(hold.heads) == 1 else None
        rows.append(Row(HEAD if hold.heads else NONE, branch, hold.ages, -1, False, Total(1, 1)))
    branches = [Branch(name, heads[name], 0, Total()) for name in names]
    return Forecast(classes_of(heads, BRANCHES), rows, branches, None)


@settings(max_examples=500)
@given(histories(), rules, st.integers(0, 9))
def test_a_forecast_frees_what_no_active_commit_has(
    history: tuple[list[Commit], dict[str, str], list[set[str]]], rules: GCRules, later: int
) -> None:
    commits, heads, objects = history
    made = forecast_of_history(commits, heads, objects)
    active = set(active_commits(commits, heads, rules, NOW + timedelta(days=later)))
    expected = outlook(made, rules, later)
    assert expected.total.objects == sum(not (having & active) for having in objects)
    assert expected.total.objects + sum(total.objects for total in expected.kept.values()) == len(objects)
    by_walks = kept_by_walks(commits, heads, rules, NOW + timedelta(days=later))
    only = [having for having in objects if having & set(heads.values()) and not having & by_walks]
    assert sum(total.objects for total in only_heads(made, rules, later).values()) == len(only)


def kept_by_walks(commits: list[Commit], heads: dict[str, str], rules: GCRules, now: datetime) -> set[str]:
    """Return the active commits without those that are active only as heads, by the definition."""
    by_id = {commit.id: commit for commit in commits}
    starts = [(head, rules.retention_days(branch)) for branch, head in heads.items()]
    dangling = by_id.keys() - {commit.main_parent for commit in commits} - set(heads.values())
    starts += [(commit, rules.default_retention_days) for commit in dangling]
    kept: set[str] = set()
    for start, days in starts:
        commit = by_id[start]
        while commit.main_parent:
            if commit.creation_date > now - timedelta(days=days):
                kept.add(commit.main_parent)
            commit = by_id[commit.main_parent]
    return kept | (active_commits(commits, heads, rules, now).keys() - heads.values())


@settings(max_examples=200)
@given(histories(), st.integers(0, 14))
def test_the_curve_is_the_outlook_of_each_uniform_rule(
    history: tuple[list[Commit], dict[str, str], list[set[str]]], days: int
) -> None:
    made = forecast_of_history(*history)
    steps = curve(made)
    assert [step for step, _ in steps] == sorted({step for step, _ in steps})
    [*_, (_, total)] = [step for step in steps if step[0] <= days]
    assert total == outlook(made, GCRules(days)).total


def test_what_frees_later_and_by_which_rule() -> None:
    made = forecast(
        row(NONE, 40, None, size=1),
        row(NONE, 10, 25, size=10),  # both rules keep it; main's 30 days end 5 days from now, the default's 20 in 10
        row(NONE, None, None, size=100),
        row(NONE, None, None, new_days=3, size=1000),
        row(HEAD, 90, None, size=10_000),
        row("staged", None, None, size=100_000),
        classes=(DEFAULT, "main"),
    )
    rules = GCRules(20, {"main": 30})
    now = outlook(made, rules)
    assert now.freed == {"default": Total(1, 1), NEVER_COMMITTED: Total(1, 100)}
    assert now.kept == {RULES: Total(1, 10), NEW: Total(1, 1000), HEADS: Total(1, 10_000), "staged": Total(1, 100_000)}
    assert [list(now.freed), list(now.kept)] == [sorted(now.freed), sorted(now.kept)], "not in the order of the rows"
    assert outlook(made, rules, 3).kept[NEW] == Total(1, 1000), "it is three days and some hours newer than the cutoff"
    later = outlook(made, rules, 10)
    assert later.freed == {"default": Total(2, 11), NEVER_COMMITTED: Total(2, 1100)}
    assert outlook(made, GCRules(5, {"main": 30}), 5).freed["branch main"] == Total(1, 10)
    assert only_heads(made, rules) == {0: Total(1, 10_000)} == only_this_branch(made)


def test_without_rules_every_commit_is_active_but_not_what_no_commit_has() -> None:
    made = forecast(row(NONE, 4000), row(NONE, None, unseen=True), row(HEAD, None), row(NONE, None))
    now = outlook(made, None)
    assert now.freed == {NEVER_COMMITTED: Total(1, 1)}
    assert now.kept == {RULES: Total(3, 3)}


def test_what_only_unknown_commits_may_have_is_unknown_under_a_longer_rule() -> None:
    unseen = row(NONE, None, unseen=True), row(NONE, 50, unseen=True)
    made = forecast(*unseen, rules=GCRules(10))
    assert outlook(made, GCRules(10)).freed == {"default": Total(2, 2)}
    longer = outlook(made, GCRules(11))
    assert (longer.total, longer.unknown) == (Total(), Total(2, 2))
    assert outlook(forecast(*unseen, rules=None), GCRules(1)).unknown == Total(2, 2), "no rules are the longest"
    assert curve(made) == [(0, Total(2, 2)), (11, Total())]


def test_days_of_protection_end_by_themselves() -> None:
    made = forecast(row(NONE, 100, -4), classes=(DEFAULT, PROTECT_DAYS))
    assert outlook(made, GCRules(7)).kept == {RULES: Total(1, 1)}
    assert outlook(made, GCRules(7), 3).total == Total()
    assert outlook(made, GCRules(7), 4).total == Total(1, 1)
    assert curve(made) == [(0, Total())]


def test_a_rule_of_a_branch_needs_its_own_class() -> None:
    made = forecast(classes=(DEFAULT, "b0"), branches=2)
    assert made.covers(None)
    assert made.covers(GCRules(3, {"b0": 1, "gone": 5}))
    assert not made.covers(GCRules(3, {"b1": 1}))


def test_ages_are_whole_days_that_round_down() -> None:
    assert whole_days(NOW, NOW - timedelta(days=2)) == 2
    assert whole_days(NOW, NOW - timedelta(days=2) + timedelta(seconds=1)) == 1
    assert whole_days(NOW, NOW + timedelta(seconds=1)) == -1
