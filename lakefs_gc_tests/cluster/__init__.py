"""What a cluster needs: the archive for its executors, and runs that lose a machine."""
