"""Read and write the files of lakeFS: ranges, entries, lists, rules, reports, addresses. No access to a store."""
