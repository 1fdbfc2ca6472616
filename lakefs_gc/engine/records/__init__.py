"""The durable records of runs: marks, approvals, ledgers, backups, restores. Rows of a run are in ``workspace``."""
