"""The versions of the sandbox: branches, tags, commits, merges and imports. Staged objects are in ``data``."""
