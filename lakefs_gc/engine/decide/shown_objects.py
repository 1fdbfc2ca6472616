"""Finds the unreferenced objects that branches show: hidden twins, and staged objects that the server's list omits.

Both searches read what branches show now, one after the other: the heads, and then the staged changes. An omitted
object that is committed in between is in neither. So the heads are read once more at the end, and hidden twins are
searched on the branches that have moved.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from lakefs_gc.engine.decide.hidden_twins import TwinSearch, find_twins
from lakefs_gc.engine.decide.unlisted_changes import counting_changes, find_omitted


def find_shown(unreferenced: DataFrame, staged: dict[str, Any], search: TwinSearch) -> DataFrame:
    """Return which unreferenced objects are kept, and why. Columns: ``schemas.KEPT``.

    ``unreferenced`` has columns ``address`` and ``size``, which may be ``ANY_SIZE``. It is read several times, so pass
    a DataFrame that is stored. ``staged`` are the facts of ``uncommitted``. The server omits an object because of the
    head at the time of its list, which is the one before the list or a later one. A branch whose head moved several
    times during one search is covered by the second look before any delete.
    """
    server, repository = search.context.server, search.run.repository
    heads_before = staged["heads"]
    with counting_changes(unreferenced, heads_before, search) as counting:
        heads = dict(server.branch_heads(repository))
        twins = find_twins(unreferenced, (heads_before, heads), search)
        omitted = find_omitted(unreferenced, staged["listed"], heads_before, search, counting)
    shown = twins.unionByName(omitted)
    if counting.wanted is None:
        return shown
    moved = {branch: commit for branch, commit in server.branch_heads(repository) if heads.get(branch) != commit}
    if not moved:
        return shown
    return shown.unionByName(find_twins(unreferenced, (moved,), search.named(f"{search.name}_moved"))).distinct()
