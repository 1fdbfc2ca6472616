"""The objects of the sandbox: addresses, uploads, staging areas, and the files for garbage collection. No commits."""
