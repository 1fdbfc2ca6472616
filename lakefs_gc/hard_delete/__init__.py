"""Executable models of five online designs for deleting data that lakeFS rejected, and of the accepted offline design.

Each design runs on a small world (``world``, ``steps``). Its operations are generators that stop at each atomic step,
and ``explorer`` tries their interleavings and crashes until an invariant breaks, or until all schedules are tried. The
designs are those of lakeFS's documents ``design/rejected/hard-delete.md`` and
``design/accepted/gc_plus/uncommitted-gc.md``. ``designs`` lists them, ``page`` writes the results.
"""
