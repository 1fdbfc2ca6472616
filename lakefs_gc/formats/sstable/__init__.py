"""Read and write SSTables, the file format of ranges and metaranges, mostly in compiled code."""
