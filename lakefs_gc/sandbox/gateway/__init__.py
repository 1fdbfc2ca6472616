"""The S3 gateway of the sandbox: a repository is a bucket, and a key begins with a branch: ``branch/path``."""
