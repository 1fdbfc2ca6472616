"""The REST API, one module for each group of routes: they read requests and write answers, and decide nothing."""
