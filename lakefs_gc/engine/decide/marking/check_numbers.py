"""The numbers behind the checks of a mark, which Dagster plots over the runs. No decision is made from them."""

from __future__ import annotations

from collections.abc import Mapping

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.decide.marking.checks import ChosenNames, Evidence, HeadSample, UnreadRepositories
from lakefs_gc.engine.records import check


def check_numbers(seen: Evidence, safety: SafetyParameters) -> Mapping[str, Mapping[str, float]]:
    """Return the numbers of each check that has some. What is unknown has none."""
    numbers: dict[str, dict[str, float]] = {
        check.SHARE_OF_OBJECTS: _share(seen.marked, seen.listed, safety),
        check.SHARE_OF_BYTES: _share(seen.marked_bytes, seen.listed_bytes, safety),
        check.COMMITTED_DATA_FOUND: {"committed": seen.committed},
        check.LIVE_OBJECTS_EXIST: {
            "missing": seen.lost,
            "deleted_by_sweeps": seen.lost_to_our_sweeps,
            "unlisted": seen.unlisted,
        },
        check.NO_OBJECT_KEPT_UNVERIFIED: {"kept_unverified": seen.shielded},
    }
    if seen.newest_marked is not None:
        hours = (seen.cutoff - seen.newest_marked).total_seconds() / 3600
        numbers[check.NOTHING_NEWER_THAN_CUTOFF] = {"hours_from_newest_to_cutoff": hours}
    if isinstance(seen.heads, HeadSample):
        heads = seen.heads
        numbers[check.NO_HEAD_OBJECT_MARKED] = {
            "sampled": heads.objects,
            "marked": len(heads.marked),
            "branches_not_read": len(heads.unread),
        }
    if isinstance(seen.others, UnreadRepositories):
        others = seen.others
        numbers[check.OTHER_REPOSITORIES_WERE_READ] = {
            "unreadable": len(others.unreadable),
            "not_read_by_settings": len(others.not_asked),
        }
    if isinstance(seen.server_missed, int):
        numbers[check.SERVER_LIST_IS_COMPLETE] = {"commits_omitted": seen.server_missed}
    if isinstance(seen.chosen_names, ChosenNames):
        numbers[check.ONLY_NAMES_OF_LAKEFS] = {
            "other_names": seen.chosen_names.objects,
            "at_root": seen.chosen_names.at_root,
        }
    return numbers


def _share(part: int, whole: int, safety: SafetyParameters) -> dict[str, float]:
    share = float(f"{part / whole:.3g}") if whole else 0.0
    return {"marked": part, "listed": whole, "share": share, "limit": safety.max_marked_share}
