"""Write the generated parts of the documentation: ``python -m lakefs_gc_tests.docs``."""

from __future__ import annotations

import sys

from lakefs_gc_tests.docs.generate import rendered


def main() -> None:
    """Write each page whose generated part changed, and print its name."""
    for page, text in rendered().items():
        if not page.exists() or page.read_text("utf-8") != text:
            page.write_text(text, "utf-8")
            sys.stdout.write(f"{page.name}: written\n")


main()
