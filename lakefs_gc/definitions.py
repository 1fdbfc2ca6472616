"""The Dagster code location: `dagster dev -m lakefs_gc.definitions`.

Importing this module reads the settings of the machine. Nothing else in lakefs-gc imports it.
"""

from __future__ import annotations

from dagster import Definitions

from lakefs_gc.config import load_settings
from lakefs_gc.pipeline.code_location import build_definitions

__all__ = ["defs"]

# Not a function with Dagster's decorator `definitions`: `Definitions.merge` takes no result of that.
defs: Definitions = build_definitions(load_settings())
"""The code location. Its names have no prefix: for other projects, see ``lakefs_gc.component``."""
