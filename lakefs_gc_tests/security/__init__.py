"""Security: no secret in what is written, nothing outside of a namespace is touched, least privilege."""
