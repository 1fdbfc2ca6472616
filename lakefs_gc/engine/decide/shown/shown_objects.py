"""Finds the unreferenced objects that branches show: hidden twins, and staged objects that the server's list omits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from lakefs_gc.engine.decide.shown.hidden_twins import find_twins
from lakefs_gc.engine.decide.shown.lookups import TwinSearch
from lakefs_gc.engine.decide.shown.unlisted_changes import Counting, OmittedSearch, counting_changes, is_complete
from lakefs_gc.engine.spark.local_rows import distinct_union
from lakefs_gc.lakefs.models import Heads


class Shown(NamedTuple):
    """``objects`` are the unreferenced objects that are kept, and why. Columns: ``schemas.KEPT``.

    ``branches`` are those that were searched, and existed then. ``is_whole``: whether these are all that the list of
    branches had when the search began.
    """

    objects: DataFrame
    branches: frozenset[str]
    is_whole: bool


def find_shown(
    unreferenced: DataFrame,
    staged: dict[str, Any],
    search: TwinSearch,
    *,
    for_mark: bool = False,
    on_heads: Callable[[Heads], Heads] = lambda heads: heads,
) -> Shown:
    """Return which unreferenced objects branches show.

    ``unreferenced`` has columns ``address`` and ``size``, which may be ``ANY_SIZE``. It is read several times, so pass
    a DataFrame that is stored. ``staged`` are the facts of ``uncommitted``. The server omits an object because of the
    head at the time of its list, which is the one before the list or a later one.

    A second look searches twice. A mark, which a second look follows, saves time: it searches once, and counts the
    changes during the lookups. ``on_heads`` gets the heads that are searched, before the first and the second search,
    and returns those of another list, which are searched as well: one of both lists may be old.
    """
    before, server, repository = staged["heads"], search.context.server, search.run.repository
    server.expect_branches(repository, before)
    now, absences_before = server.heads_of(repository), server.absences.copy()
    another = on_heads(now)
    with counting_changes(unreferenced, {**before, **now}, search, at_once=for_mark) as counting:
        later: Heads = now
        if for_mark:
            kept = _search_once(unreferenced, staged, now, search, counting)
        else:
            kept, later = _search_twice(unreferenced, staged, (now, another), search, counting, on_heads)
    # Those of ``before`` were searched only if they still exist: one may have been deleted and created again. A branch
    # for which the server said that it does not exist was not searched either, and that answer may be wrong.
    absences = server.absences
    searched = {branch for branch in now if absences[repository, branch] == absences_before[repository, branch]}
    return Shown(distinct_union(kept), frozenset(searched), searched == {*now, *later})


def _search_once(
    unreferenced: DataFrame, staged: dict[str, Any], now: Heads, search: TwinSearch, counting: Counting
) -> list[DataFrame]:
    before = staged["heads"]
    twins = find_twins(unreferenced, (before, now), search)
    counted = counting.result()
    later = search.context.server.heads_of(search.run.repository)
    is_whole_list = is_complete(staged["listed"], counted, before, later, search.run)
    omitted = OmittedSearch(search, list_is_complete=is_whole_list)
    if not is_whole_list:
        omitted.look_up([*counted, *counting.read({**before, **later})])
    return [twins.kept(), omitted.kept(unreferenced)]


def _search_twice(
    unreferenced: DataFrame,
    staged: dict[str, Any],
    heads: tuple[Heads, Heads],
    search: TwinSearch,
    counting: Counting,
    on_heads: Callable[[Heads], Heads],
) -> tuple[list[DataFrame], Heads]:
    """Search everything, then everything again. Return what is kept, and the heads right before the second search.

    What is moved once during the first search is where it is now in the second, and what is moved during the second was
    where it had been in the first. The look reads commits and other repositories before the first and after the second.
    """
    before, server, repository = staged["heads"], search.context.server, search.run.repository
    now, another = heads
    counted = counting.result()
    is_whole_list = is_complete(staged["listed"], counted, before, server.heads_of(repository), search.run)
    omitted = OmittedSearch(search, list_is_complete=is_whole_list)
    riders = omitted.riders(counted)
    twins = [find_twins(unreferenced, (before, now, another), search, riders)]
    omitted.look_up(counted, riders)

    searched = {item for each in (before, now, another) for item in each.items()}
    later = server.heads_of(repository)
    moved = [dict(each.items() - searched) for each in (later, on_heads(later))]
    counted = counting.read({**before, **now, **later})
    if omitted.list_is_complete:
        latest = server.heads_of(repository)
        omitted.list_is_complete = is_complete(staged["listed"], counted, before, latest, search.run)
    riders = omitted.riders(counted)
    twins[0].look_up_again(riders)
    if any(moved):
        twins.append(find_twins(unreferenced, moved, replace(search, name=f"{search.name}_moved"), riders))
        twins[1].look_up_again()  # the first answers may be those of a replica that is behind
    omitted.look_up(counted, riders)
    return [*(paths.kept() for paths in twins), omitted.kept(unreferenced)], later
