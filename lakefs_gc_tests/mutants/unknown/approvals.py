"""Rule 12: approvals, and policies."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        12,
        "a delay goes by the later of a mark's times",
        "assets/sweep.py",
        "age_of(found.store, found.mark, safety).least",
        "age_of(found.store, found.mark, safety).most",
        "assets/test_clocks.py",
        "delay_of_a_policy",
    ),
    never(
        12,
        "a mark that was made for a person is not swept by a policy",
        "engine/approval.py",
        "mark.sweep_policy == MANUAL",
        "engine/test_approval.py",
        "stands_in_the_mark",
    ),
    never(
        12,
        "the delay of the mark holds",
        "engine/approval.py",
        "age + safety.two_clocks_apart < delay",
        "engine/test_approval.py",
        "stands_in_the_mark",
    ),
    Mutant(
        12,
        "the sensor leaves marks for a person alone",
        "sensors.py",
        "mark.rows and mark.policy != MANUAL",
        "mark.rows",
        "test_sensors.py",
        "was_fixed",
    ),
    Mutant(
        12,
        "a sweep by a policy asks the mark",
        "assets/sweep.py",
        "            refuse_without_person(found.mark, age_of(found.store, found.mark, safety).least, safety)\n",
        "",
        "assets/test_pipeline.py",
        "policy_sweeps",
    ),
)
