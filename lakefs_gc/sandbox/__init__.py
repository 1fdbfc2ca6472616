"""An embedded lakeFS-compatible server, for the demo and the tests: never for data that anybody needs.

It speaks the part of the lakeFS REST API that people and garbage collectors use, keeps refs and staging
areas in SQLite, and writes real ranges and metaranges into a real object store. Where it answers otherwise
than lakeFS does, it is wrong, but for what ``differences`` lists.
"""
