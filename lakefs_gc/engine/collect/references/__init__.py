"""Read every reference to an object, from staged entries, active commits and other repositories."""
