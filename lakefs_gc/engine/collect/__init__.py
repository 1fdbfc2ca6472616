"""Collect what exists (``listing``) and what is referenced (``references``). Nothing here decides or deletes."""
