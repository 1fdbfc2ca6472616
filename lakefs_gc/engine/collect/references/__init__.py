"""Read every reference to an object: staged entries, active commits, other repositories. No listings."""
