"""The parsers of external files: their inputs, their permitted errors, and the properties of accepted files.

A target's ``read`` gets any bytes. It may raise the target's ``refusals``. Any other error, a crash or a hang is a
finding. So is a ``Finding`` that it raises because two ways to read the same bytes differ. The content of a file that a
*sealed* target accepts must equal the content of one of its seeds. Such files have checksums or a digest over all used
parts, so a changed file is rejected, or the change is in an unused part.

numba's compiled code cannot be instrumented. So targets of the decoder exist twice. In the compiled form, only the
Python code around it guides the fuzzer. In the *interpreted* form, the same functions run as Python, every memory
access is checked, and coverage guides the fuzzer through them (see ``interpreted``). Nothing is compiled in such a
process.
"""

from lakefs_gc_tests.fuzz.targets import documents, inventories, messages, pages, parquet, sstables
from lakefs_gc_tests.fuzz.targets.target import Target

_MODULES = (sstables, messages, pages, parquet, inventories, documents)

TARGETS: dict[str, Target] = {target.name: target for module in _MODULES for target in module.TARGETS}
