"""Fuzzing of every parser of external files.

``targets`` is the table of parsers, with their permitted errors and the properties of accepted files. It runs in two
ways:

* ``pytest`` replays the corpus and a fixed series of mutations of good files, in seconds.
* ``python -m lakefs_gc_tests.fuzz TARGET --seconds N`` searches with atheris, guided by coverage (``pip install -e
  '.[fuzz]'``). It writes findings to ``findings/`` in the working directory. Replay such a file with
  ``python -m lakefs_gc_tests.fuzz TARGET --replay FILE``, and add it to ``corpus/<target>/`` after the fix.
"""
