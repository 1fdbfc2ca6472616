"""An embedded lakeFS-compatible server for the demo and the tests; never use it for data that must be kept.

It implements the part of the lakeFS REST API that people and garbage collectors use, stores refs and staging areas in
SQLite, and writes real ranges and metaranges into a real object store. An answer that differs from lakeFS's is a bug,
unless ``differences`` lists it.
"""
