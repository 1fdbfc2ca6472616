"""Limits with which a store copies an object of 10 MiB in parts."""

from __future__ import annotations

from lakefs_gc.storage.s3.copy import CopyLimits

MIB = 1024 * 1024
IN_PARTS = CopyLimits(single_bytes=5 * MIB, part_bytes=5 * MIB, parts_at_once=2)
