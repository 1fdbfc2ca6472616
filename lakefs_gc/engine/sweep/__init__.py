"""Delete the objects of an approved mark, after a second look, and record every outcome."""
