"""The moves: events in a repository, other repositories and the collector, besides the operations of users."""

from __future__ import annotations

from lakefs_gc_tests.properties.moves.records import approvals, killed, rewritten_marks
from lakefs_gc_tests.properties.moves.surroundings import clocks, folders, meanwhile
from lakefs_gc_tests.properties.moves.unreadable import metadata, other_repository, server, workspace
from lakefs_gc_tests.properties.seeded import Move

MOVES: dict[str, Move] = {
    "approvals": Move(approvals),
    "clocks": Move(clocks),
    "folders, known": Move(folders, {"issues_folder_addresses": True}, needs_folder=True),
    "folders, unknown": Move(folders, needs_folder=True),
    "killed": Move(killed),
    "meanwhile": Move(meanwhile),
    "metadata": Move(metadata),
    "other repository": Move(other_repository),
    "rewritten marks": Move(rewritten_marks),
    "server": Move(server),
    "workspace": Move(workspace),
}
"""The moves by name. A seed selects one."""
