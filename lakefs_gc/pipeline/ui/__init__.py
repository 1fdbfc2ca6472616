"""What the Dagster UI shows: checks, numbers, charts and tables, failures, and what became of a mark."""
