"""Executable models of five online designs that lakeFS rejected for deleting data, and of the offline one it took.

Each design runs on a small world (``world``, ``steps``), its operations are generators that stop at each atomic step,
and an explorer (``explorer``) goes through their interleavings and crashes until an invariant breaks, or none can.
The designs are those of lakeFS's documents ``design/rejected/hard-delete.md`` and
``design/accepted/gc_plus/uncommitted-gc.md``; ``designs`` lists them, ``page`` tells what came out.
"""
