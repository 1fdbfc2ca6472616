"""``python -m lakefs_gc_tests.fuzz.bounds``: the interpreted targets on the corpus and on damaged files.

Prints ``kept`` if no memory access was outside its buffer. Needs a separate process: see ``interpreted``.
"""

from __future__ import annotations

import random
import sys

from lakefs_gc_tests.fuzz import interpreted

_MUTANTS = 400


def main() -> None:
    interpreted.interpret()
    from lakefs_gc.formats.sstable import memory
    from lakefs_gc_tests.fuzz.mutation import mutant
    from lakefs_gc_tests.fuzz.targets import TARGETS
    from lakefs_gc_tests.fuzz.targets.target import REFUSED

    try:
        memory.load_8(1)
    except interpreted.OutOfBoundsError:
        pass
    else:
        sys.exit("accesses to memory are not checked")
    rng = random.Random(11)
    for target in (target for target in TARGETS.values() if target.interpreted):
        seeds = target.seeds()
        for data in [*seeds, *(file.read_bytes() for file in target.corpus)]:
            target.run(data)
        mutants = [mutant(rng.choice(seeds), rng.choice(seeds), rng) for _ in range(_MUTANTS)]
        # Checksums count as correct here, so that some damaged files are accepted and more code runs.
        outcomes = [target.run(data) for data in mutants]
        if all(outcome is REFUSED for outcome in outcomes):
            sys.exit(f"{target.name} accepts nothing")
    sys.stdout.write("kept\n")


if __name__ == "__main__":
    main()
