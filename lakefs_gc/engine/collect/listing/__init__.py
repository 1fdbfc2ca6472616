"""List the objects of a namespace, from the store, an inventory, or an earlier run. References are read elsewhere."""
