"""Decide which objects may be deleted, check the decision, and write it as a mark. Nothing here deletes."""
