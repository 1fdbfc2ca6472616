"""The traces of the document of the rejected designs, followed step by step, end as the document describes.

Each schedule names the operations in the order of the document, each with the step that the document describes.
A model that omits a step of a flow, or takes it at another time, cannot follow the schedule.
"""

from __future__ import annotations

import pytest

from lakefs_gc.hard_delete.designs import find_design, find_scenario
from lakefs_gc.hard_delete.explorer import Event, Explorer, ModelError
from lakefs_gc.hard_delete.model import Kind

Steps = list[tuple[str, str]]
"""Operation, and the beginning of the text of its step."""


def follow(design: int, name: str, steps: Steps) -> tuple[list[Event], dict[Kind, str]]:
    """Take the operations in this order; each step must be the expected one."""
    explorer = Explorer(find_scenario(find_design(design), name))
    events, broken = explorer.follow([operation for operation, _ in steps])
    for event, (operation, text) in zip(events, steps, strict=True):
        assert event.operation == operation.removeprefix("crash ")
        assert event.text.startswith(text), f"{event.text!r}, and the document has {text!r}"
    return events, broken


WRITE_AFTER_COMMIT: Steps = [
    ("upload a", "reads branch main"),
    ("upload a", "starts to write repo/main/t1/a"),  # 1. Start write on staged object
    ("commit", "reads branch main"),  # 2. Start Commit
    ("commit", "changes the staging token to u2"),
    ("commit", "reads commit c0"),
    ("commit", "lists repo/main/t1/"),
    ("commit", "writes commit d2: a = repo/main/t1/a"),  # 3. Commit flow writes current object to committed tables
    ("commit", "moves main to commit d2"),
    ("upload a", "completes the write"),  # 4. Write to object is completed
]


def test_design_1_a_write_changes_what_was_committed() -> None:
    *_, broken = follow(1, "write-after-commit", WRITE_AFTER_COMMIT)
    assert broken == {Kind.CHANGED: "d2/a was committed as 'old data' and now reads 'data 1'"}


def test_design_1_nothing_is_broken_before_the_write_completes() -> None:
    *_, broken = follow(1, "write-after-commit", WRITE_AFTER_COMMIT[:-1])
    assert not broken


LOST_UPDATE: Steps = [
    ("stage b as A", "Stage 1.1: reads the metadata of A"),  # Stage 1.1: read its metadata
    ("delete a", "reads branch main"),
    ("delete a", "reads entry a"),
    ("delete a", "stages a tombstone for a"),
    ("delete a", "checks whether main still has t1"),
    ("delete a", "Delete 1-2: reads the metadata of A"),  # Delete 1: read object's metadata
    ("stage b as A", "Stage 1.1: writes counter 2"),  # Stage 1.1.1: increment the counter and update the metadata
    ("delete a", "Delete 1-2: writes counter 0"),  # Delete 2.1: decrement counter, of what was read before
]


def test_design_2_an_update_is_lost_on_aws() -> None:
    events, broken = follow(
        2,
        "lost-update-aws",
        [
            *LOST_UPDATE,
            ("delete a", "Delete 1-2: hard-deletes A"),  # Delete 2.2.1: counter == 0
            ("stage b as A", "reads branch main"),
            ("stage b as A", "stages b = A"),
        ],
    )
    assert [event.reply for event in events[6:8]] == ["done", "done"]
    assert broken.keys() == {Kind.STAGED_LOST}


def test_design_2_a_condition_on_the_metadata_detects_the_lost_update() -> None:
    events, broken = follow(
        2,
        "lost-update-azure",
        [
            *LOST_UPDATE,
            ("delete a", "Delete 1-2: reads the metadata of A"),
            ("delete a", "Delete 1-2: writes counter 1"),
            ("stage b as A", "reads branch main"),
            ("stage b as A", "stages b = A"),
        ],
    )
    assert [event.reply for event in events[6:8]] == ["done", "no: it has changed"]
    assert not broken


def test_design_3_two_uploads_to_one_path_mark_neither() -> None:
    first = [
        "Upload 1: writes object",
        "reads branch main",
        "Upload 2: reads the reference",
        "reads the clock",
        "Upload 2: marks",
        "Upload 4: reads entry a",
    ]
    last = ["stages a = ", "checks whether main still has t1"]
    *_, broken = follow(
        3,
        "overwrite",
        [(who, step) for texts in (first, last) for who in ("upload a", "upload a (2)") for step in texts],
    )
    assert not broken  # The object leaks: the job never deletes it.
    trace = Explorer(find_scenario(find_design(3), "overwrite")).shortest(Kind.LEAKED)
    assert trace is not None
    assert not any("deletes" in event.text for event in trace.afterwards)


def test_design_3_the_job_counts_from_the_oldest_reference() -> None:
    *_, broken = follow(
        3,
        "job-copy",
        [
            ("copy a to dev", "reads branch main"),
            ("copy a to dev", "reads entry a in t1"),
            ("delete a", "reads branch main"),
            ("delete a", "Delete 1: reads entry a"),
            ("delete a", "Delete 1.1-1.2: reads the reference of A"),  # Delete 1.1: Read reference key
            ("delete a", "reads the clock"),
            ("delete a", "Delete 1.1-1.2: marks A by t1 as deleted"),  # Delete 1.2.1: state deleted, last_modified
            ("delete a", "reads branch main"),
            ("delete a", "stages a = tombstone"),
            ("delete a", "checks whether main"),
            ("job", "Job 1: scans the references"),  # Job 1: Scan `reference` prefix
            ("job", "reads the clock"),
            ("job", "Job 2: reads the references of A"),  # Job 2: for each physical address read all entries
            ("job", "Job 2.2: hard-deletes A"),  # Job 2.2.1: deleted in all, min(last_modified)
            ("copy a to dev", "reads branch dev"),
            ("copy a to dev", "Stage 1.1: reads the reference of A"),  # Stage 1.1: Add reference entry
            ("copy a to dev", "reads the clock"),
            ("copy a to dev", "Stage 1.1: marks A by d1 as staged"),
            ("copy a to dev", "stages b = A in d1"),  # Stage 3: Add staged entry
        ],
    )
    assert broken.keys() == {Kind.STAGED_LOST}


def test_design_4_an_override_on_the_same_token_leaks() -> None:
    upload = ["Upload 1: writes object", "reads branch main", "Upload 2-3: reads", "Upload 2-3: sets", "stages a = N"]
    runs = {"upload a": [*upload, "checks whether main"], "upload a (2)": [*upload, "checks whether main"]}
    steps = [(who, step) for who, texts in runs.items() for step in texts]
    *_, broken = follow(4, "empty: upload a + upload a", steps)
    assert not broken
    trace = Explorer(find_scenario(find_design(4), "override")).shortest(Kind.LEAKED)
    assert trace is not None
    assert trace.detail.startswith("A ")
    assert not any("A" in event.text.split() for event in trace.afterwards)


def test_design_4_a_reset_deletes_an_object_that_a_commit_contains() -> None:
    steps = [
        ("upload a", "Upload 1: writes object N1"),
        ("upload a", "reads branch main"),
        ("upload a", "Upload 2-3: reads the reference list of N1"),
        ("upload a", "Upload 2-3: sets the list of N1 to (t1)"),
        ("upload a", "stages a = N1 in t1"),
        ("commit", "reads branch main"),
        ("commit", "changes the staging token to u2"),
        ("commit", "reads branch main"),
        ("commit", "reads commit c0"),
        ("commit", "reads what is staged in t1"),
        ("commit", "writes commit e2: a = N1"),
        ("commit", "moves main to commit e2"),
        ("commit", "Commit 2: adds the committed entry of e2"),
        ("job", "Job: scans the committed tokens"),
        ("job", "Job: reads commit e2"),
        ("job", "Job: removes the reference key of N1"),
        ("job", "Job: moves t1 to the deleted tokens"),
        ("job", "Job: removes the committed entry of e2"),
        ("upload a", "checks whether main still has t1"),
        ("upload a", "reads branch main"),
        ("upload a", "Upload 2-3: reads the reference list of N1"),
        ("upload a", "Upload 2-3: sets the list of N1 to (u2)"),
        ("upload a", "stages a = N1 in u2"),
        ("reset", "reads branch main"),
        ("reset", "changes the staging token to r3"),
        ("reset", "Reset 2: adds the deleted entry of u2"),
        ("job", "Job: scans the deleted tokens"),
        ("job", "Job: reads what is staged in t1"),
        ("job", "Job: reads the reference list of N1"),
        ("job", "Job: deletes the staging area of t1"),
        ("job", "Job: removes the deleted entry of t1"),
        ("job", "Job: reads what is staged in u2"),
        ("job", "Job: reads the reference list of N1"),
        ("job", "Job: removes u2 from the list of N1"),
        ("job", "Job: the list is empty: hard-deletes N1"),
    ]
    *_, broken = follow(4, "empty: upload a + commit + reset", steps)
    assert broken == {Kind.COMMITTED_LOST: "e2/a is committed as N1, which does not exist"}


def test_design_4_a_copy_fails_if_the_list_is_empty() -> None:
    steps = [
        ("copy a to dev", "reads branch main"),
        ("copy a to dev", "reads entry a in t1"),
        ("copy a to dev", "reads branch dev"),
        ("reset", "reads branch main"),
        ("reset", "changes the staging token"),
        ("reset", "Reset 2: adds the deleted entry"),
        ("job", "Job: scans the committed tokens"),
        ("job", "Job: scans the deleted tokens"),
        ("job", "Job: reads what is staged in t1"),
        ("job", "Job: reads the reference list of A"),
        ("job", "Job: removes t1 from the list of A"),
        ("copy a to dev", "Copy 1.1: reads the reference list of A"),
    ]
    *_, broken = follow(4, "copy-reset", steps)
    assert not broken
    with pytest.raises(ModelError, match="copy a to dev cannot proceed"):
        follow(4, "copy-reset", [*steps, ("copy a to dev", "")])


COMMIT_MOVE: Steps = [
    ("move a to b", "reads branch main"),
    ("move a to b", "Move 1: gets entry a"),  # 1.1 Get entry
    ("move a to b", 'Move 2: "locks" entry a'),  # 1.2 "Lock" entry
    ("commit", "reads branch main"),
    ("commit", "changes the staging token to u2"),  # 2.1 Change staging token
    ("commit", "reads branch main"),
    ("commit", "reads commit c0"),
    ("commit", "reads what is staged in t1"),
    ("commit", "writes commit d2: a = A"),  # 2.2 write commit data (old entry path was written)
    ("commit", "moves main to commit d2"),
    ("commit", "drops the sealed staging token t1"),
    ("move a to b", "reads branch main"),
    ("move a to b", "Move 3: copies the entry to b in u2"),  # 3.1 Create new entry on new staging token
    ("move a to b", "Move 4: deletes old entry a"),  # 3.2 Delete old entry
    ("move a to b", 'Move 5: "unlocks" new entry b'),  # 3.3 "Unlock" physical address
]
RESET: Steps = [
    ("reset", "reads branch main"),
    ("reset", "changes the staging token to r3"),
    ("reset", "reads what is staged in u2"),
    ("reset", "drops entry b of u2"),
    ("reset", "hard-deletes A"),
]


def test_design_5_commit_move_leaves_an_uncommitted_entry_for_a_committed_object() -> None:
    explorer = Explorer(find_scenario(find_design(5), "commit-move"))
    events, broken = follow(5, "commit-move", COMMIT_MOVE)
    assert not broken
    assert len(events) == len(COMMIT_MOVE)
    assert explorer.shortest(Kind.COMMITTED_LOST) is not None


def test_design_5_after_commit_move_a_reset_deletes_committed_data() -> None:
    *_, broken = follow(5, "commit-move", [*COMMIT_MOVE, *RESET])
    assert broken == {Kind.COMMITTED_LOST: "d2/a is committed as A, which does not exist"}


DELETE_MOVE: Steps = [
    ("delete a", "reads branch main"),
    ("delete a", "Delete 1: gets entry a, once it is not locked"),  # 1.1 Get entry, 1.2 Check if not "locked"
    ("move a to b", "reads branch main"),
    ("move a to b", "Move 1: gets entry a"),  # 2.1 Get entry
    ("move a to b", 'Move 2: "locks" entry a'),  # 2.2 "Lock" entry
    ("move a to b", "reads branch main"),
    ("move a to b", "Move 3: copies the entry to b"),  # 2.3 Copy entry to new path on current staging token
    ("delete a", "Delete 3: deletes staging entry a"),
    ("delete a", "checks whether main"),
    ("delete a", "Delete 4: hard-deletes A"),  # 3.1 Hard Delete object from store
]


def test_design_5_a_move_between_check_and_delete_loses_the_object() -> None:
    *_, broken = follow(5, "delete-move", DELETE_MOVE)
    assert broken == {Kind.STAGED_LOST: "main/b is staged as A, which does not exist"}


def test_design_5_a_delete_that_locks_excludes_the_move() -> None:
    to_the_lock = [("delete a", text) for text in ("reads branch main", "Delete 1: gets", 'Delete 2: "locks"')]
    events, broken = follow(5, "delete-move-locked", [*DELETE_MOVE[2:5], *to_the_lock[:1]])
    assert not broken
    explorer = Explorer(find_scenario(find_design(5), "delete-move-locked"))
    names = [operation for operation, _ in [*DELETE_MOVE[2:5], *to_the_lock]]
    with pytest.raises(ModelError, match="delete a cannot proceed"):
        explorer.follow(names)
    events, broken = follow(5, "delete-move-locked", [*to_the_lock, ("move a to b", "reads branch main")])
    assert events[2].reply == "done"
    with pytest.raises(ModelError, match="move a to b cannot proceed"):
        explorer.follow([*(operation for operation, _ in to_the_lock), "move a to b", "move a to b"])


def test_design_5_concurrent_moves_make_two_entries_for_one_object() -> None:
    move = ["reads branch main", "Move 1: gets entry a", 'Move 2: "locks" entry a']
    rest = ["reads branch main", "Move 3: copies", "Move 4: deletes old entry", 'Move 5: "unlocks" new entry']
    *_, broken = follow(
        5,
        "concurrent-move",
        [
            *(("move a to b", text) for text in move),
            *(("move a to c", text) for text in move[:2]),
            *((who, text) for who in ("move a to b", "move a to c") for text in rest),
            ("delete b", "reads branch main"),
            ("delete b", "Delete 1: gets entry b"),
            ("delete b", "Delete 3: deletes staging entry b"),
            ("delete b", "checks whether main"),
            ("delete b", "Delete 4: hard-deletes A"),
        ],
    )
    assert broken == {Kind.STAGED_LOST: "main/c is staged as A, which does not exist"}


def test_design_5_a_stale_lock_blocks_forever() -> None:
    trace = Explorer(find_scenario(find_design(5), "stale-lock")).shortest(Kind.BLOCKED)
    assert trace is not None
    assert [event.text for event in trace.events if event.operation == "move a to b"][-2:] == [
        'Move 2: "locks" entry a',
        "crashes",
    ]
    assert trace.detail == "delete a waits: Delete 1: gets entry a, once it is not locked"


def test_design_5_a_lock_that_expires_allows_delete_move_again() -> None:
    *_, broken = follow(
        5,
        "timed-lock",
        [
            ("move a to b", "reads branch main"),
            ("move a to b", "Move 1: gets entry a"),
            ("move a to b", "reads the clock"),
            ("move a to b", 'Move 2: "locks" entry a'),
            ("time", "time passes"),
            ("delete a", "reads branch main"),
            ("delete a", "Delete 1: gets entry a"),
            ("delete a", "reads the clock"),
            ("delete a", "reads the clock"),
            ("delete a", 'Delete 2: "locks" entry a'),
            ("delete a", "Delete 3: deletes staging entry a"),
            ("delete a", "checks whether main"),
            ("delete a", "Delete 4: hard-deletes A"),
            ("move a to b", "reads branch main"),
            ("move a to b", "Move 3: copies the entry to b"),
        ],
    )
    assert broken.keys() == {Kind.STAGED_LOST}
