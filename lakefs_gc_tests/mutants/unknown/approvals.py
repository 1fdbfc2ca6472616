"""Rule 12: approvals, and policies."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

MUTANTS: tuple[Mutant, ...] = (
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
        "now + _CLOCKS_APART < due",
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
        "            refuse_without_person(found.mark, utc_now())\n",
        "",
        "assets/test_pipeline.py",
        "policy_sweeps",
    ),
    never(
        12,
        "an approval names a person",
        "engine/approval.py",
        "not by.strip()",
        "engine/test_approval.py",
        "names_a_person",
    ),
    never(
        12,
        "an approval names the digest that was looked at",
        "engine/approval.py",
        "not digest",
        "engine/test_approval.py",
        "names_a_person",
    ),
    Mutant(
        12,
        "an approval overrides what is on, or is refused",
        "engine/approval.py",
        """    refuse_braked(
        mark.brakes,
""",
        """    refuse_braked(
        (),
""",
        "engine/test_approval.py",
        "unless_it_is_overridden",
    ),
    Mutant(
        12,
        "the sensor acts on no approval that a sweep has followed",
        "engine/standing_approvals.py",
        " and not _is_followed(store, approval, info)",
        "",
        "engine/test_standing_approvals.py",
        "was_followed",
    ),
    Mutant(
        12,
        "the sensor acts on the approvals of people alone",
        "engine/standing_approvals.py",
        "approval.approved_via in _BY_A_PERSON and ",
        "",
        "engine/test_standing_approvals.py",
        "whoever_wrote_it",
    ),
    Mutant(
        12,
        "an approval of another repository counts for nothing",
        "engine/standing_approvals.py",
        "(approval.mark_id, approval.repository) != (mark_id, repository)",
        "approval.mark_id != mark_id",
        "engine/test_standing_approvals.py",
        "approves_nothing",
    ),
    Mutant(
        12,
        "a repository that cannot be looked at is said",
        "approval_sensor.py",
        """    unread = "; ".join(""",
        """    unread = "" and "; ".join(""",
        "test_approval_sensor.py",
        "stops_no_other",
    ),
)
