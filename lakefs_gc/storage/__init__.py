"""Object stores: list, read, put, copy, and delete with an outcome for each key."""
