"""Finds what branches show although no list of the server has it."""
