"""The S3 gateway: a repository is a bucket, and a key is ``branch/path``. The REST API is in ``routes``."""
