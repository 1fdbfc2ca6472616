"""Which objects a store has, also those with unusual keys, for which not every store can be asked."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from lakefs_gc.errors import NamespaceError, StorageError
from lakefs_gc.storage.base import ObjectInfo, ObjectStore

_UNUSUAL = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|\0")
"""A key with an empty part, also at its end, with ``.`` or ``..`` as a part, or with a null character."""


@dataclass(frozen=True)
class Stored:
    """The objects that exist, and why the store could not be asked for some keys."""

    objects: dict[str, ObjectInfo]
    not_asked: dict[str, str]


def look_up(store: ObjectStore, keys: Collection[str]) -> Stored:
    """Return which objects exist.

    Some stores have keys such as ``a//b`` and ``a/``, some refuse them, and none can be asked for ``a/../b``. So each
    unusual key is asked for alone: one that is refused says nothing about the others.
    """
    unusual = [key for key in keys if _UNUSUAL.search(key)]
    stored = Stored(store.stat_many(sorted(set(keys).difference(unusual))), {})
    for key in unusual:
        try:
            stored.objects.update(store.stat_many([key]))
        except (NamespaceError, StorageError) as error:
            stored.not_asked[key] = error.message
    return stored
