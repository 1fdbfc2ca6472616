"""The documentation: what is generated in it, and the tests that keep it true."""
