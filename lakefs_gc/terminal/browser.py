"""Opens files in the browser of a person who sits at this machine."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

_NEEDS_DISPLAY = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def open_in_browser(file: Path) -> bool:
    """Open a file in a browser, and return whether there is one to open it.

    A browser that would take over the terminal (lynx, w3m) is not used, except if the variable BROWSER names it.
    """
    if sys.platform not in ("darwin", "win32") and not any(map(os.environ.get, _NEEDS_DISPLAY)):
        return False
    try:
        return webbrowser.open(file.resolve().as_uri())
    except webbrowser.Error:
        return False
