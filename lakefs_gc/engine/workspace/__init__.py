"""The workspace: the DataFrames of each run as Parquet, and the range cache. It may be deleted at any time."""
