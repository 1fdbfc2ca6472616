"""``python -m lakefs_gc`` is ``lakefs-gc``."""

from lakefs_gc.cli import main

main()
