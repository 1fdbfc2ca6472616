"""The workspace: the DataFrames of each run and the cache of ranges, as Parquet. It may be deleted at any time."""
