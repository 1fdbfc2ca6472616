"""The asset graph: one module for each asset, each of them a call of its engine stage."""
