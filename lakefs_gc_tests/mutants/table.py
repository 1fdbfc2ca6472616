"""What is taken out of the code, by the rule of ``docs/safety.md`` that it is part of, and where a test must fail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import lakefs_gc

PACKAGE = Path(lakefs_gc.__file__).parent


@dataclass(frozen=True)
class Mutant:
    """One change of one place: in ``file`` (below ``lakefs_gc/``), where it stands once, ``code`` becomes ``instead``.

    ``test`` is a file below ``lakefs_gc_tests/``; ``only`` selects from it, as pytest's ``-k`` does.
    """

    rule: int
    taken_out: str
    file: str
    code: str
    instead: str
    test: str
    only: str = ""

    def applied(self, source: str) -> str:
        """The source, changed.  Raises ``ValueError`` where the code does not stand there once."""
        if source.count(self.code) != 1:
            raise ValueError(f"{self.file} has {source.count(self.code)} times {self.code!r}")
        return source.replace(self.code, self.instead)


def _never(rule: int, taken_out: str, file: str, condition: str, test: str, only: str = "") -> Mutant:
    """A check that never strikes: ``condition`` is what stands behind its ``if``."""
    return Mutant(rule, taken_out, file, f"if {condition}:", "if False:", test, only)


MUTANTS = (
    _never(
        1,
        "stages that were read in another order are refused",
        "engine/run.py",
        "later.began_at < earlier.ended_at",
        "engine/test_run.py",
    ),
    _never(
        1,
        "inputs that were not made from each other are refused",
        "engine/run.py",
        "later.manifest.inputs.get(stage) != materialization_id",
        "engine/test_candidates.py",
        "do_not_fit",
    ),
    _never(
        2,
        "the server's grace period holds",
        "engine/run.py",
        "min_age_seconds >= grace_period_seconds or safety.allow_min_age_below_grace",
        "engine/test_run.py",
    ),
    _never(
        2,
        "clocks too far apart stop the run",
        "engine/run.py",
        "skew_seconds > safety.max_clock_skew_seconds",
        "engine/test_run.py",
    ),
    Mutant(
        2,
        "ages go by the store's clock",
        "engine/run.py",
        "    return store_time\n",
        "    return local_time\n",
        "engine/test_run.py",
    ),
    _never(
        3,
        "that nothing is committed is no proof",
        "engine/unmatched.py",
        "committed.manifest.rows == 0",
        "engine/test_candidates.py",
        "no_proof",
    ),
    _never(
        3,
        "a range has as many entries as its metarange says",
        "engine/committed.py",
        "entries is not None and batch.num_rows != entries",
        "engine/test_committed.py",
        "differs",
    ),
    Mutant(
        3,
        "an address is left out only when it came before",
        "engine/repeats.py",
        "        yield once\n",
        "        yield once.slice(1)\n",
        "engine/test_repeats.py",
    ),
    _never(
        3,
        "a list that starts again is refused",
        "engine/uncommitted.py",
        "token in tokens_seen",
        "engine/test_uncommitted.py",
    ),
    Mutant(
        3,
        "commits that the server's list leaves out are active",
        "engine/active_ranges.py",
        "listed.unionByName(missed).select",
        "listed.select",
        "engine/test_own_commits.py",
        "leaves_out",
    ),
    Mutant(
        4,
        "only data can be garbage",
        "engine/unmatched.py",
        ' & F.col("address").rlike(CANDIDATE_ADDRESS_REGEX)',
        "",
        "engine/test_candidates.py",
        "only_what_can_be",
    ),
    _never(
        4,
        "a sweep refuses what no mark of data can name",
        "engine/sweep.py",
        "misplaced",
        "engine/test_sweep.py",
        "other_places",
    ),
    _never(
        5,
        "overlapping namespaces are refused",
        "engine/run.py",
        "other.name != repository.name and namespaces_overlap(other.storage_namespace, repository.storage_namespace)",
        "engine/test_run.py",
    ),
    Mutant(
        5,
        "what other repositories refer to is live",
        "engine/unmatched.py",
        "for dataset in (committed, uncommitted, foreign_references)\n        ),",
        "for dataset in (committed, uncommitted)\n        ),",
        "engine/test_foreign_references.py",
        "imported",
    ),
    Mutant(
        6,
        "what became referenced is not deleted",
        "engine/sweep.py",
        'F.when(F.col("live"), F.lit(ledger.RESURRECTED))',
        "F.when(F.lit(False), F.lit(ledger.RESURRECTED))",
        "engine/test_second_look.py",
        "came_back",
    ),
    Mutant(
        6,
        "what one look has found, all later ones know",
        "engine/second_look.py",
        "        self._remember(staged, live, foreign)\n",
        "",
        "engine/test_second_look.py",
        "forgotten",
    ),
    Mutant(
        6,
        "hidden twins are looked for in a mark",
        "engine/kept.py",
        "dataframe=twins.unionByName(protected)",
        "dataframe=protected",
        "engine/test_hidden_twins.py",
        "branch_shows",
    ),
    Mutant(
        6,
        "hidden twins are looked for before a delete",
        "engine/second_look.py",
        "StageOutput(twins.unionByName(protected), clock())",
        "StageOutput(protected, clock())",
        "engine/test_second_look.py",
        "twin",
    ),
    Mutant(
        6,
        "every content of the heads is compared",
        "engine/hidden_twins.py",
        "[_contents_of(found)] if is_summed and found else found",
        "[] if is_summed else found",
        "engine/test_hidden_twins.py",
        "contents or too_many",
    ),
    Mutant(
        6,
        "more twins than may be looked up are kept",
        "engine/hidden_twins.py",
        'return alike.select("address", "size", F.lit(schemas.SHIELDED).alias("why"))',
        "return _none(spark)",
        "engine/test_hidden_twins.py",
        "too_many",
    ),
    _never(
        6,
        "what was written again is not deleted",
        "engine/deletion.py",
        "info.last_modified > newest",
        "engine/test_sweep.py",
    ),
    _never(
        6,
        "no delete begins when its look has grown old",
        "engine/deletion.py",
        "is_over()",
        "engine/test_deletion.py",
    ),
    _never(
        6,
        "a sweep waits for commits that were under way",
        "engine/sweep.py",
        "left_seconds > 0",
        "engine/test_sweep.py",
        "waits",
    ),
    _never(
        7,
        "what is live and not there is listed",
        "engine/missing.py",
        'unmatched.manifest.facts["not_in_store"]',
        "engine/test_missing.py",
    ),
    _never(7, "and keeps the mark from being swept", "engine/brakes.py", "seen.lost", "engine/test_brakes.py"),
    _never(8, "a brake that is on refuses the sweep", "engine/brakes.py", "left", "engine/test_brakes.py"),
    Mutant(
        8,
        "the sweep reads the brakes of its mark",
        "assets/sweep.py",
        "        found.mark.brakes,\n",
        "        (),\n",
        "assets/test_brakes.py",
        "keeps",
    ),
    _never(
        9,
        "a mark that was changed is refused",
        "engine/marks.py",
        "digest_of(mark) != mark.digest or mark.to_json() != data",
        "engine/test_marks.py",
    ),
    _never(
        9,
        "and so is a changed part of it",
        "engine/marks.py",
        "hashlib.sha256(content).hexdigest() != part.sha256",
        "engine/test_marks.py",
    ),
    _never(
        9, "who approves names the digest", "engine/approval.py", "digest != mark.digest", "engine/test_approval.py"
    ),
    _never(
        9,
        "a sweep with a failed delete is no success",
        "engine/sweep_result.py",
        "failed",
        "engine/test_sweep.py",
        "no_success",
    ),
    Mutant(
        9,
        "the intent is durable before the delete",
        "engine/deletion.py",
        "    writer.intent(",
        "    str(",
        "engine/test_sweep_killed.py",
    ),
    Mutant(
        9,
        "a restore makes the approval void",
        "engine/approval.py",
        "    refuse_restored(store, mark.mark_id, older)\n",
        "",
        "engine/test_restores.py",
    ),
    Mutant(
        9,
        "a restore stops a sweep that is under way",
        "engine/deletion.py",
        "return is_late() or bool(notes_in(namespace, restores).keys() - known_restores)",
        "return is_late()",
        "engine/test_restores.py",
    ),
    _never(
        10,
        "the later of two runs ends",
        "resources/run_lock.py",
        "own is None or _was_first(record, own)",
        "resources/test_run_lock.py",
    ),
    Mutant(
        10,
        "a mark asks whether it is the only run",
        "assets/store_listing.py",
        "    refuse_second_run(context)\n",
        "",
        "assets/test_pipeline.py",
        "second_run",
    ),
    Mutant(
        11,
        "other repositories are read unless somebody says no",
        "config.py",
        "    check_foreign_references: bool = Field(\n        default=True",
        "    check_foreign_references: bool = Field(\n        default=False",
        "test_config.py",
    ),
)
