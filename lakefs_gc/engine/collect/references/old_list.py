"""Refuses a list of a namespace's metadata files that lacks one which exists (rule 12).

An empty or an old list, for example of a cache, raises no error, and what only the omitted files refer to looks like
garbage. The metarange of a commit is written before the commit exists. So a list has that of each commit that the
server has named before the list began.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER
from lakefs_gc.errors import StorageError
from lakefs_gc.storage.base import ObjectStore

_LOOKUPS = 1000
"""Of a list that lacks many files, the first ones that exist are enough."""


def metarange_ids(named: Collection[str]) -> pa.StringArray:
    """Return ``named`` for ``refuse_old_list``, as tasks of Spark carry it: 200,000 ids are 14 MB."""
    return pa.array(sorted(named), pa.string())


def refuse_old_list(store: ObjectStore, listed: pa.StringArray, named: pa.StringArray) -> None:
    """Raise ``StorageError`` if ``listed`` (addresses) lacks a metadata file of ``named`` (ids) that the store has.

    A file that the store does not have is up to the caller.
    """
    files = pc.binary_join_element_wise(METADATA_FOLDER, named, "")
    missing = files.filter(pc.invert(pc.is_in(files, value_set=listed))).to_pylist()
    for begin in range(0, len(missing), _LOOKUPS):
        found = store.stat_many(missing[begin : begin + _LOOKUPS])
        if found:
            raise StorageError(
                f"{store.location.folder_url}: a list of {METADATA_FOLDER} has {len(listed):,} files, but not "
                f"{min(found)}, which exists, and which a commit named before the list began. What the files that it "
                "omits refer to would look like garbage",
                remedy="The lists of the store are behind, or an old answer of a cache or a proxy. Wait some minutes, "
                "and check what is between this machine and the store (proxies, caches, mounts). Then start a new "
                "run, or sweep again. Nothing was deleted by this list",
            )
