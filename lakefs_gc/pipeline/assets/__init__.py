"""The asset graph: one module for each asset. Each asset calls its engine stage."""
