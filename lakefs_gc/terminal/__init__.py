"""Output and logs of the command line: tables, progress, JSON. Nothing here computes what it shows."""
