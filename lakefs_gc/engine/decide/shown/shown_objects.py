"""Finds the unreferenced objects that branches show: hidden twins, and staged objects that the server's list omits."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from lakefs_gc.engine.decide.shown.heads import Heads
from lakefs_gc.engine.decide.shown.hidden_twins import TwinSearch, find_twins
from lakefs_gc.engine.decide.shown.unlisted_changes import counting_changes, find_omitted


class Shown(NamedTuple):
    """``objects`` are the unreferenced objects that are kept, and why. Columns: ``schemas.KEPT``.

    ``branches`` are those that were searched, and existed then. ``is_whole``: whether these are all that the list of
    branches had when the search began.
    """

    objects: DataFrame
    branches: frozenset[str]
    is_whole: bool


def find_shown(unreferenced: DataFrame, staged: dict[str, Any], search: TwinSearch, *, at_once: bool = False) -> Shown:
    """Return which unreferenced objects branches show.

    ``unreferenced`` has columns ``address`` and ``size``, which may be ``ANY_SIZE``. It is read several times, so pass
    a DataFrame that is stored. ``staged`` are the facts of ``uncommitted``. The server omits an object because of the
    head at the time of its list, which is the one before the list or a later one.

    A hidden twin may be moved before it is looked up. Its path is a change only then, so the changes are counted after
    the lookups. A mark, which a second look follows, saves time: it counts them ``at_once``, during the lookups.

    An omitted object that is committed meanwhile may be in neither, so a second look reads the commits afterwards.
    """
    heads_before, server = staged["heads"], search.context.server
    server.expect_branches(search.run.repository, heads_before)
    heads = server.heads_of(search.run.repository)
    return _search(unreferenced, (heads_before, heads), staged["listed"], search, at_once=at_once)


def find_shown_by(branches: Collection[str], unreferenced: DataFrame, search: TwinSearch) -> Shown:
    """Return which unreferenced objects these branches show now. Those that do not exist are not searched."""
    listed = search.context.server.heads_of(search.run.repository)
    heads = {branch: head for branch, head in listed.items() if branch in branches}
    return _search(unreferenced, (heads, heads), None, search, among=heads.keys())


def _search(
    unreferenced: DataFrame,
    heads: tuple[Heads, Heads],
    listed: int | None,
    search: TwinSearch,
    *,
    at_once: bool = False,
    among: Collection[str] | None = None,
) -> Shown:
    before, now = heads
    absences, repository = search.context.server.absences, search.run.repository
    absences_before = absences.copy()
    with counting_changes(unreferenced, {**before, **now}, search, at_once=at_once) as counting:
        twins = find_twins(unreferenced, heads, search)
        omitted = find_omitted(unreferenced, listed, before, search, counting, among=among)
    # Those of ``before`` were searched only if they still exist: one may have been deleted and created again. A branch
    # for which the server said that it does not exist was not searched either, and that answer may be wrong.
    searched = {branch for branch in now if absences[repository, branch] == absences_before[repository, branch]}
    return Shown(twins.unionByName(omitted).distinct(), frozenset(searched), searched == now.keys())
