"""One module per modelled design, and the parts that several designs share. The search is in ``explorer``."""
