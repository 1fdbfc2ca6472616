"""The page of a mark: one model, built from records, and its renderings as text, Markdown and HTML.

Nothing here reads a store or a server. The page decides nothing: a sweep checks everything again.
"""
