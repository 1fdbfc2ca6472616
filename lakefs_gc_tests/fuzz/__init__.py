"""Fuzzing of every parser of files that come from outside.

``targets`` is the table of parsers, what they may refuse with, and what must hold of what they accept. Two ways to
run it:

* ``pytest`` replays the corpus and a fixed series of mutations of good files, in seconds;
* ``python -m lakefs_gc_tests.fuzz TARGET --seconds N`` searches with atheris, guided by coverage (``pip install -e
  '.[fuzz]'``). What it finds is written to ``findings/`` in the working directory; give such a file to
  ``python -m lakefs_gc_tests.fuzz TARGET --replay FILE``, and keep it in ``corpus/<target>/`` once it is mended.
"""
