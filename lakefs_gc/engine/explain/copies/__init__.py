"""Looks for copies of objects: versions, backups, what killed copies left, and what lakeFS itself serves."""
