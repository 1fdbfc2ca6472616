"""The configuration of the Dagster instance that the package contains."""

from __future__ import annotations

from importlib.resources import files

INSTANCE_FILE = "dagster.yaml"
_PLACES = "# -- places"
_BEHAVIOUR = "# -- behaviour"
_HEADER = "# The Dagster instance of lakefs-gc. Its files are in the folder of this file, which is DAGSTER_HOME."


def instance_configuration() -> str:
    """Return the package's ``dagster.yaml`` for a ``DAGSTER_HOME``.

    It has no sections about folders: theirs are relative to the working directory, and without them all of Dagster's
    files are below ``DAGSTER_HOME``.
    """
    text = (files("lakefs_gc") / INSTANCE_FILE).read_text("utf-8")
    behaviour = text[text.index(_BEHAVIOUR) :].partition("\n")[2]
    return f"{_HEADER}\n{behaviour}"
