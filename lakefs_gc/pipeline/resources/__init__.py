"""What the assets are given: the lakeFS server, Spark, the settings, and the place where DataFrames are kept."""
