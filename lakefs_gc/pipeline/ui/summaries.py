"""What the Dagster UI shows of a mark, an approval, a backup, a sweep and a restore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dagster import MetadataValue

from lakefs_gc.engine.forecast.facts import ASSUMPTION, LIMITS, forecast_facts, metadata_facts, sampled
from lakefs_gc.engine.forecast.outlook import Forecast
from lakefs_gc.engine.records.approval import Approval
from lakefs_gc.engine.records.backups.manifest import Backup
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_facts import report_key
from lakefs_gc.engine.records.stored_marks import Marked
from lakefs_gc.engine.sweep.outcomes import SweepResult
from lakefs_gc.engine.undo.backup import BackupResult
from lakefs_gc.engine.undo.pruning import Pruned, kept_facts
from lakefs_gc.engine.undo.restore import CONFLICT, FAILED, LOST, RestoreResult
from lakefs_gc.pipeline.names import OWN, Names
from lakefs_gc.pipeline.ui.metadata import Metadata, bar_chart, table
from lakefs_gc.report.facts import page_facts
from lakefs_gc.report.markdown import list_markdown, next_markdown
from lakefs_gc.report.page import BACKUP, MarkPage
from lakefs_gc.report.tables import Table, tables
from lakefs_gc.report.text import as_text
from lakefs_gc.report.words import at
from lakefs_gc.units import human_bytes

_BRANCHES_SHOWN = 20


def mark_metadata(marked: Marked, page: MarkPage, names: Names = OWN) -> Metadata:
    """Return what the UI shows of a mark: the page of the mark in its order, then numbers that Dagster plots."""
    mark = marked.mark
    shown = {table.name: table for table in tables(page) if table.name != "files"}
    failed = shown.pop("failed_checks", None)
    prefixes = shown.pop("largest_prefixes", None)
    return {
        "dagster/row_count": mark.candidates,
        "what_now": what_now(page, names, at_the_time=True),
        **({"failed_checks": _failed_checks(failed)} if failed else {}),
        "size": human_bytes(mark.candidate_bytes or 0),
        **{name: _table_of(shown_table) for name, shown_table in shown.items()},
        **_backup_of(page),
        **({"files": _files_below(mark)} if page.files else {}),
        **({"folders_note": page.groups_note} if page.groups_note else {}),
        **report_metadata(marked),
        **({"what_else_changes": MetadataValue.md("\n\n".join(page.consequences))} if page.consequences else {}),
        **({"why_empty": page.why_empty} if page.why_empty else {}),
        "why": table(
            [
                {"reason": reason, "objects": total["objects"], "size": human_bytes(total["size_bytes"])}
                for reason, total in mark.reasons.items()
            ]
        ),
        **({"largest_prefixes": _table_of(prefixes)} if prefixes else {}),
        **({"why_an_object": page.explain_command} if page.sample else {}),
        "notification": MetadataValue.json({"text": as_text(page), "facts": page_facts(page)}),
        "bytes": mark.candidate_bytes or 0,
        "deleted_bytes": str(mark.run.get("deleted_bytes", "unknown")),
        **not_lakefs_metadata(mark),
        **{f"{step.name}_objects": step.amount.objects for step in page.funnel},
        **{f"{step.name}_bytes": step.amount.size_bytes for step in page.funnel},
        "checks_failed": sum(check.result == "failed" for check in page.failed_checks),
        "checks_warned": sum(check.result == "warning" for check in page.failed_checks),
        **{f"{stage}_rows": rows for stage, rows in mark.counts.items()},
        "cutoff": MetadataValue.timestamp(mark.cutoff),
        "only": mark.only.value,
        "mark_id": mark.mark_id,
        "digest": mark.digest,
        "sweep_policy": mark.sweep_policy,
        "sweep_delay_hours": mark.sweep_delay_hours,
        **({"ready_at": MetadataValue.timestamp(page.ready_at)} if page.ready_at else {}),
        "location": MetadataValue.text(mark.location),
    }


def current_metadata(page: MarkPage, names: Names) -> Metadata:
    """Return what of the page of a mark changes after the mark was made, in an observation of ``mark``.

    In the UI these entries replace those of the materialization that have the same names, and stand before the others.
    """
    outcomes = next((table for table in tables(page) if table.name == "outcomes"), None)
    return {
        "what_now": what_now(page, names),
        **({"outcomes": _table_of(outcomes)} if outcomes else {}),
        **_backup_of(page),
    }


def what_now(page: MarkPage, names: Names, *, at_the_time: bool = False) -> MetadataValue[Any]:
    """Return the next step for a mark, with the configuration that an approval in the UI needs.

    ``at_the_time``: it says that it is that of the time of the mark. The overview of an asset in the UI shows the
    materialization without what was observed since.
    """
    op = names.name("sweep_approval")
    approval = f"ops:\n  {op}:\n    config:\n      digest: {page.digest}\n      approved_by: YOUR NAME\n"
    if page.next.overrides:
        approval += f"      overrides: [{', '.join(page.next.overrides)}]\n      why: THE REASON\n"
    as_of = f"*As of {at(page.created_at)}, when the mark was made. What has happened since: tab Partitions.*\n\n"
    return MetadataValue.md((as_of if at_the_time else "") + next_markdown(page, approval))


def report_metadata(marked: Marked) -> Metadata:
    """Return how to open the HTML report, and where it is: a path that the UI copies at a click.

    A browser opens neither a local file from a page of a server nor an object of a bucket, so it is not a link.
    """
    mark = marked.mark
    url = marked.store.location.folder_url + report_key(mark.mark_id)
    return {
        "report": MetadataValue.md(f"`lakefs-gc report {mark.repository} {mark.mark_id}` opens it in a browser"),
        "report_file": MetadataValue.path(url.removeprefix("file://")),
    }


def _files_below(mark: Mark) -> MetadataValue[Any]:
    """Return where the list of objects is. Dagster wraps no URL, so the folder is in ``location`` alone."""
    return MetadataValue.md(
        f"- **as CSV**: `lakefs-gc report {mark.repository} {mark.mark_id} --list FILE`\n"
        "- **as text, one address a line**: `deleted.text/` below `location`\n"
        "- **as Parquet**: `deleted/` below `location`"
    )


def _backup_of(page: MarkPage) -> Metadata:
    """Return whether the mark has a backup: an entry of its own, because a backup may be made after the mark."""
    return {fact.name: MetadataValue.text(fact.value) for fact in page.in_force if fact.name == BACKUP}


def _failed_checks(shown: Table) -> MetadataValue[Any]:
    """Return the failed checks without the names of the overrides, which are those of the checks and very wide."""
    columns = dict(zip(("result", "check", "found", "means", "override"), range(5), strict=True))
    return table(
        [
            {
                "check": row[columns["check"]],
                "result": row[columns["result"]],
                "override": "needed" if row[columns["override"]].startswith("--") else row[columns["override"]],
                "what it found": row[columns["found"]],
                "what it means": row[columns["means"]],
            }
            for row in shown.rows
        ]
    )


def _table_of(shown: Table) -> MetadataValue[Any]:
    if shown.name == "in_force":
        shown = replace(shown, rows=tuple(row for row in shown.rows if row[0] != BACKUP))
    if shown.name == "sample":
        return table(_sample_rows(shown))
    if shown.name in ("in_force", "lowered_settings", "timing"):
        return MetadataValue.md(list_markdown(shown))
    # A column needs a name.
    names = [column or name for column, name in zip(shown.columns, ("fact", "value", "", ""), strict=False)]
    names += shown.columns[len(names) :]
    return table([dict(zip(names, row, strict=True)) for row in shown.rows])


def not_lakefs_metadata(mark: Mark) -> Metadata:
    """Return the totals of the objects at the root whose names lakeFS did not generate, and why they are collected."""
    metadata: Metadata = {}
    if mark.not_lakefs is not None:
        objects, size_bytes = mark.not_lakefs
        metadata |= {"not_lakefs": objects, "not_lakefs_bytes": size_bytes, "not_lakefs_size": human_bytes(size_bytes)}
    if mark.named_at_root:
        metadata["named_at_root"] = MetadataValue.text(mark.named_at_root)
    return metadata


def forecast_metadata(forecast: Forecast) -> Metadata:
    """Return what the UI shows of a forecast: what the present rules free, the curve, the branches, the limits."""
    facts = forecast_facts(forecast)
    present, unread = facts["present"], facts["not_read"]
    freed = {f"freed_bytes_in_{row['days']}_days": row["size_bytes"] for row in present["freed"]}
    steps = [step for step in facts["curve"] if step["objects"]]
    return {
        "freed": table(
            [_freed_row(rule, total, row["days"]) for row in present["freed"] for rule, total in row["by_rule"].items()]
        ),
        **freed,
        "freed_by_a_rule_of_n_days": MetadataValue.md(
            bar_chart({_days(step["days"]): step["size_bytes"] for step in sampled(steps)}, human_bytes)
        ),
        "only_heads": table(
            [
                {
                    "branch": row["branch"] or "several",
                    "idle_days": "" if row["idle_days"] is None else row["idle_days"],
                    "objects": row["objects"],
                    "size": human_bytes(row["size_bytes"]),
                }
                for row in present["only_heads"][:_BRANCHES_SHOWN]
            ]
        ),
        "only_heads_bytes": sum(row["size_bytes"] for row in present["only_heads"]),
        "unnamed_metadata_bytes": metadata_facts(forecast).get("unnamed_bytes", 0),
        "not_read": ", ".join((*unread["metadata_files"], *unread["repositories"])) or "none",
        "not_read_files": len(unread["metadata_files"]),
        "assumption": ASSUMPTION,
        "limits": MetadataValue.md("\n".join(f"- {limit}" for limit in LIMITS)),
    }


def _freed_row(rule: str, total: Mapping[str, int], days: int) -> dict[str, str | int]:
    when = f"in {_days(days)}" if days else "now"
    return {"when": when, "rule": rule, "objects": total["objects"], "size": human_bytes(total["size_bytes"])}


def _days(days: int) -> str:
    return "1 day" if days == 1 else f"{days} days"


def approval_metadata(approval: Approval) -> Metadata:
    """Return what a materialization of ``sweep_approval`` records. The sensors read it."""
    return {
        "mark_id": approval.mark_id,
        "digest": approval.digest,
        "only": approval.only.value,
        "approved_by": approval.approved_by,
        "approved_via": approval.approved_via,
        "approved_at": MetadataValue.timestamp(approval.approved_at),
        "overrides": ", ".join(approval.overrides) or "none",
        "why": "; ".join(sorted(set(approval.overrides.values()))),
    }


def backup_metadata(result: BackupResult) -> Metadata:
    """Return what the UI shows of a backup."""
    return {
        "outcomes": table(
            [
                {"outcome": name, "objects": objects, "size": human_bytes(result.size_bytes[name])}
                for name, objects in result.objects.items()
            ]
        ),
        "proofs": table([{"proof": proof, "objects": objects} for proof, objects in result.proofs.items()]),
        **{f"{name}_objects": objects for name, objects in result.objects.items()},
        **{f"{name}_bytes": size_bytes for name, size_bytes in result.size_bytes.items()},
        **({"backup_digest": MetadataValue.text(result.backup.digest)} if result.backup else {}),
    }


def pruned_metadata(pruned: Pruned) -> Metadata:
    """Return how many expired backups were removed, and which of them stay and why."""
    kept = {"old_backups_kept": table([kept_facts(*backup) for backup in pruned.kept])} if pruned.kept else {}
    return {"pruned_backups": len(pruned.removed)} | kept


def sweep_metadata(result: SweepResult) -> Metadata:
    """Return what the UI shows of a sweep."""
    outcomes = result.outcomes.items()
    return {
        "outcomes": table(
            [
                {"outcome": name, "objects": outcome.objects, "size": human_bytes(outcome.size_bytes)}
                for name, outcome in outcomes
            ]
        ),
        "outcomes_chart": MetadataValue.md(bar_chart({name: outcome.objects for name, outcome in outcomes}, str)),
        **{f"{name}_objects": outcome.objects for name, outcome in outcomes},
        **{f"{name}_bytes": outcome.size_bytes for name, outcome in outcomes},
    }


def restore_metadata(result: RestoreResult, backup: Backup, prefix: str) -> Metadata:
    """Return what the UI shows of a restore: what exists again, how that was proved, and what is still missing."""
    outcomes: list[dict[str, str | int]] = [
        {"outcome": name, "objects": objects, "size": human_bytes(result.size_bytes[name])}
        for name, objects in result.objects.items()
    ]
    return {
        "outcomes": table(outcomes),
        "still_missing": table([{"objects": objects, "what": what} for what, objects in _still_missing(result)]),
        **({"errors": table(result.errors)} if result.errors else {}),
        "proof": table(
            [
                {"objects": result.checksums_compared, "proof": "compared with the checksum of the backup"},
                {"objects": result.read_through_lakefs, "proof": "of these, read through lakeFS"},
                {"objects": result.shown_by_no_commit, "proof": "of these, shown by no commit"},
            ]
        ),
        "digest": MetadataValue.text(result.digest),
        "record": MetadataValue.text(result.record_url),
        "mark_id": result.mark_id,
        **({"prefix": MetadataValue.text(prefix)} if prefix else {}),
        "backup_digest": MetadataValue.text(backup.digest),
        "mark_digest": MetadataValue.text(backup.mark_digest),
        "missing_objects": result.missing,
        "checksums_compared": result.checksums_compared,
        **{f"{name}_objects": objects for name, objects in result.objects.items()},
        **{f"{name}_bytes": size_bytes for name, size_bytes in result.size_bytes.items()},
    }


def _still_missing(result: RestoreResult) -> Iterator[tuple[str, int]]:
    """Yield what of the mark does not exist again, for which reason, without the reasons that no object has."""
    reasons = {
        "another object exists at the address (conflict)": result.objects[CONFLICT],
        "the backup location no longer has the copy (lost)": result.objects[LOST],
        "could not be copied (failed)": result.objects[FAILED],
        "restored, but lakeFS does not return the content": result.unreadable,
        "did not exist at the time of the backup, which has no copy": result.without_copy,
        "outside the prefix, not requested": result.not_requested,
        "of these, in no metadata file, so that their path is unknown": result.without_path,
        "metadata files of commits that cannot be read, so not all was proved": result.unreadable_metadata,
    }
    yield from ((reason, objects) for reason, objects in reasons.items() if objects)


def _sample_rows(shown: Table) -> list[dict[str, str]]:
    """Return the sample with the path of each object, or else its address: both are too wide for a cell."""
    rows = []
    for row in shown.rows:
        cells = dict(zip(shown.columns, row, strict=True))
        path, address = cells.pop("path"), cells.pop("address")
        rows.append({"object": path or address, **cells})
    return rows
