"""Answer questions about single objects: why one is garbage or kept, and whether its content is erased."""
