"""Properties that must hold over random histories."""
