"""The Dagster code location: `dagster dev -m lakefs_gc.definitions`."""

from __future__ import annotations

from dagster import Definitions, definitions

from lakefs_gc.config import load_settings
from lakefs_gc.pipeline.code_location import build_definitions

__all__ = ["build_definitions", "defs"]


@definitions
def defs() -> Definitions:
    """Return the code location for the settings of the machine that loads it."""
    return build_definitions(load_settings())
