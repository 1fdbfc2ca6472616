"""List large namespaces with parallel requests, or from inventory reports, for any vendor's store."""
