"""Back up the objects of a mark, restore them, and remove expired backups. The sweep itself is in ``sweep``."""
