"""The lakeFS server: its API client, retention rules and active commits. The objects themselves are in ``storage``."""
