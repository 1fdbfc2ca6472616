"""The collector, free of Dagster: each stage takes DataFrames and returns DataFrames.

The stages, in the order of the flow: ``store_listing``, ``uncommitted``, ``active_ranges``, ``committed``,
``foreign_references``, ``unmatched``, ``kept``, ``candidates``, ``mark``, ``sweep``.
"""
