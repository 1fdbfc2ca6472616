"""Retention: which commits a repository's rules keep active, and why."""
