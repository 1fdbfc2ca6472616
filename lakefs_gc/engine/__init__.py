"""The collector, free of Dagster: each stage takes DataFrames and returns DataFrames.

The stages, numbered in the order of the flow: ``store_listing``, ``uncommitted``, ``active_ranges``, ``committed``,
``foreign_references``, ``unmatched``, ``kept``, ``candidates``, ``mark``, ``sweep``.  Beside them stand ``missing``, an
audit, and the undo: ``backup`` and ``restore``.
"""
