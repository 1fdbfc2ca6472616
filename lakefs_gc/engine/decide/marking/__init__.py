"""Writes the mark, with the checks and facts that people decide by."""
