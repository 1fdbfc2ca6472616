"""What a search for copies of objects found."""

from __future__ import annotations

from dataclasses import dataclass

NO_LOCATION = "backups: no backup location is configured (backup.url)"
FORMER_LOCATION = "backups in a former location, "
OTHER_FOLDER = "another folder in a backup location, "
"""How the texts begin about locations that could not be read as a whole, and about folders in a location that are at
the place of no backup and could not be read: that they have no backup may be stated."""


@dataclass(frozen=True)
class Copies:
    """For each address, one text for each kind of copy that exists, and what could not be looked at."""

    of: dict[str, list[str]]
    unread: tuple[str, ...] = ()
