"""Each parser on the corpus, and on a fixed series of damaged files. For the search see ``lakefs_gc_tests.fuzz``."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from lakefs_gc.formats import ranges
from lakefs_gc_tests.fuzz import bounds
from lakefs_gc_tests.fuzz.mutation import mutant
from lakefs_gc_tests.fuzz.targets import TARGETS
from lakefs_gc_tests.fuzz.targets.target import CORPUS, REFUSED, Finding, Target

COMPILED = [target for target in TARGETS.values() if not target.interpreted]
_MUTANTS = 150
_MOST_CORPUS_BYTES = 300_000
by_name = pytest.mark.parametrize("target", COMPILED, ids=lambda target: target.name)


@by_name
def test_good_files_are_accepted(target: Target) -> None:
    assert target.seeds()
    for seed in target.seeds():
        assert target.run(seed) is not REFUSED


@by_name
def test_damaged_files_are_rejected_or_have_the_same_content(target: Target) -> None:
    """Earlier findings of the fuzzer are in the corpus."""
    for file in target.corpus:
        target.run(file.read_bytes())
    rng = random.Random(target.name)
    seeds = target.seeds()
    for _ in range(_MUTANTS):
        target.run(mutant(rng.choice(seeds), rng.choice(seeds), rng))


def test_the_decoder_keeps_its_bounds_interpreted() -> None:
    """The same functions run as Python in a separate process, with every memory access checked."""
    ended = subprocess.run(
        [sys.executable, "-m", bounds.__name__], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "kept\n"), ended.stderr[-2000:]


def test_a_changed_file_that_is_accepted_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TARGETS["metarange"]
    assert target.run(target.seeds()[0]) is not REFUSED
    seed = max(target.seeds(), key=lambda data: len(target.run(data)))
    real = ranges.read_metarange
    monkeypatch.setattr(ranges, "read_metarange", lambda data, file: real(seed, file).slice(1))
    with pytest.raises(Finding, match="differs from all seeds"):
        target.run(b"anything")


def test_the_corpus_is_small_and_each_file_belongs_to_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} <= set(TARGETS)
    assert sum(file.stat().st_size for file in CORPUS.rglob("*") if file.is_file()) <= _MOST_CORPUS_BYTES
