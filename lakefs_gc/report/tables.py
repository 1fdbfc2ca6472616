"""The tables of the page of a mark, as texts. Every rendering shows the same ones, in this order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from lakefs_gc.report.page import MarkPage
from lakefs_gc.report.words import at, percent
from lakefs_gc.units import human_bytes, human_duration

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table with a title. ``numbers`` are the columns with numbers. ``name`` is its key in Dagster's metadata."""

    name: str
    title: str
    columns: Row
    rows: tuple[Row, ...]
    numbers: frozenset[str] = frozenset({"objects", "size", "% of objects", "% of bytes", "before", "now", "change"})
    note: str = ""


def tables(page: MarkPage) -> Iterator[Table]:
    """Yield the tables of a page that have rows."""
    for table in (
        _checks(page),
        _outcomes(page),
        _funnel(page),
        _ages(page),
        _comparison(page),
        _groups(page),
        _sample(page),
        _prefixes(page),
        _lists("in_force", "In force", [(f.name, f.value) for f in page.in_force]),
        _lowered(page),
        _lists("timing", "Timing", [(f.name, f.value) for f in page.timing]),
        _lists("files", "The whole list of objects", [(f.name, f.value) for f in page.files]),
    ):
        if table.rows:
            yield table


def _checks(page: MarkPage) -> Table:
    rows = tuple((c.result, c.name, c.message, c.meaning, c.override or "none needed") for c in page.failed_checks)
    return Table(
        "failed_checks",
        "Failed checks and warnings",
        ("result", "check", "what it found", "what it means", "override"),
        rows,
    )


def _outcomes(page: MarkPage) -> Table:
    rows = tuple(
        (o.name.replace("_", " "), f"{o.amount.objects:,}", human_bytes(o.amount.size_bytes)) for o in page.outcomes
    )
    return Table("outcomes", "Outcomes of the sweep", ("outcome", "objects", "size"), rows)


def _funnel(page: MarkPage) -> Table:
    rows = tuple(
        (
            f"{'  ' if step.is_detail else ''}{step.label}",
            f"{step.amount.objects:,}",
            percent(step.share_of_objects),
            human_bytes(step.amount.size_bytes),
            percent(step.share_of_bytes),
        )
        for step in page.funnel
    )
    if not rows and page.objects:  # a mark without facts
        rows = tuple(
            (reason.replace("_", " "), f"{amount.objects:,}", "", human_bytes(amount.size_bytes), "")
            for reason, amount in page.reasons
        )
    columns = ("objects of the store", "objects", "% of objects", "size", "% of bytes")
    return Table("funnel", "From the store to the mark", columns, rows)


def _ages(page: MarkPage) -> Table:
    rows = tuple(
        (
            row.name,
            human_bytes(row.listed_bytes),
            human_bytes(row.marked_bytes),
            human_bytes(row.marked_bytes - row.never_committed_bytes),
            human_bytes(row.never_committed_bytes),
        )
        for row in page.ages
    )
    columns = ("age", "in the store", "marked", "of these expired", "of these never committed")
    return Table("bytes_by_age", "Bytes by age", columns, rows if page.objects else (), frozenset(columns[1:]))


def _comparison(page: MarkPage) -> Table:
    def text(value: int, is_bytes: bool) -> str:
        return human_bytes(value) if is_bytes else f"{value:,}"

    rows = tuple(
        (c.name, text(c.before, c.is_bytes), text(c.now, c.is_bytes), _change(c.now - c.before, c.is_bytes))
        for c in page.comparison
    )
    return Table("comparison", f"Compared with {page.compared_with}", ("", "before", "now", "change"), rows)


def _change(difference: int, is_bytes: bool) -> str:
    size = human_bytes(abs(difference)) if is_bytes else f"{abs(difference):,}"
    return "none" if not difference else f"{'+' if difference > 0 else '−'}{size}"


def _groups(page: MarkPage) -> Table:
    rows = tuple(
        (
            group.folder,
            f"{group.objects:,}",
            human_bytes(group.size_bytes),
            f"{group.commit_id[:12]} {at(group.committed_at) if group.committed_at else ''}".strip(),
            group.committer,
            group.branch,
            _rule(group.rule, group.expired_on),
        )
        for group in page.groups
    )
    columns = ("folder", "objects", "size", "last commit", "committer", "branch", "rule")
    return Table("folders", "Folders of the repository that lose objects", columns, rows, note=page.groups_note)


def _sample(page: MarkPage) -> Table:
    rows = tuple(_sampled(page, row) for row in page.sample)
    columns = ("path", "size", "age", "last commit", "branch", "why", "address")
    note = f"Why an object is in this mark, and what would keep it: {page.explain_command}"
    return Table("sample", "Sample of the marked objects", columns, rows, note=note)


def _sampled(page: MarkPage, row: Mapping[str, str | int]) -> Row:
    known = {name: str(value) for name, value in row.items()}
    modified = known.get("last_modified")
    age = page.created_at - datetime.fromisoformat(modified) if modified else None
    reason = known.get("reason", "").replace("_", " ")
    return (
        known.get("path", ""),
        human_bytes(int(row["size"])) if "size" in row else "",
        human_duration(age.total_seconds()) if age else "",
        known.get("commit_id", "")[:12],
        known.get("branch", ""),
        _rule(known["rule"], known["expired_on"]) if "rule" in known else reason,
        known["address"],
    )


def _rule(rule: str, expired_on: str) -> str:
    return f"{rule}: expired on {expired_on}" if expired_on else rule


def _prefixes(page: MarkPage) -> Table:
    rows = tuple((p.prefix, f"{p.objects:,}", human_bytes(p.size_bytes)) for p in page.prefixes)
    return Table("largest_prefixes", "Largest prefixes of the store", ("prefix", "objects", "size"), rows)


def _lowered(page: MarkPage) -> Table:
    rows = tuple((setting.name, setting.value, setting.default) for setting in page.lowered)
    title = "Settings that lower the safety of this mark"
    return Table("lowered_settings", title, ("setting", "value", "default"), rows)


def _lists(name: str, title: str, rows: list[tuple[str, str]]) -> Table:
    return Table(name, title, ("", ""), tuple(rows))
