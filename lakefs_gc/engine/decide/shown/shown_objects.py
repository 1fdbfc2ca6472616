"""Finds the unreferenced objects that branches show: hidden twins, and staged objects that the server's list omits."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyspark.sql import DataFrame

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
    before, server, repository = staged["heads"], search.context.server, search.run.repository
    server.expect_branches(repository, before)
    now, absences_before = server.heads_of(repository), server.absences.copy()
    with counting_changes(unreferenced, {**before, **now}, search, at_once=at_once) as counting:
        twins = find_twins(unreferenced, (before, now), search)
        omitted = find_omitted(unreferenced, staged["listed"], before, search, counting)
    # Those of ``before`` were searched only if they still exist: one may have been deleted and created again. A branch
    # for which the server said that it does not exist was not searched either, and that answer may be wrong.
    absences = server.absences
    searched = {branch for branch in now if absences[repository, branch] == absences_before[repository, branch]}
    return Shown(twins.unionByName(omitted).distinct(), frozenset(searched), searched == now.keys())
