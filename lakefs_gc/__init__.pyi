from lakefs_gc.api import marks as marks

__version__: str
