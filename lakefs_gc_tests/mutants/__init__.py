"""The safety rules taken out one by one, and the tests that notice: ``python -m lakefs_gc_tests.mutants``."""
