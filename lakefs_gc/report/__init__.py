"""The page of a mark: one model, built from records, and its renderings as text, Markdown and HTML.

Only ``current`` reads a store. The page decides nothing: a sweep checks everything again.
"""
