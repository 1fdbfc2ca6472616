"""The records of backups, in the backup location and beside the mark."""
