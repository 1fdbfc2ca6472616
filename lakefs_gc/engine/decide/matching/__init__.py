"""Compares the listing with all references: what is unreferenced, and what is not listed."""
