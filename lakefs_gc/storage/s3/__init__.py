"""S3 and S3-compatible stores. This is the only package that imports boto3 for a store."""
