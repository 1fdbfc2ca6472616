"""The Dagster resources of the assets: the lakeFS server, Spark, the settings, and the workspace."""
