"""Security: no secret in any output, nothing outside a namespace is touched, least privilege."""
