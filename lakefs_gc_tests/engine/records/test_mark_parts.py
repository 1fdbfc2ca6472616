"""The overview that a person reads before approving, also for a mark that does not record sizes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from lakefs_gc.engine.records.mark_parts import PART_SCHEMA, PrefixTotal, overview, part_content
from lakefs_gc.engine.records.stored_marks import read_mark
from lakefs_gc.errors import MarkError
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark

NAMESPACE = "local://lake/"


def test_a_mark_of_lakefs_own_client(tmp_path: Path) -> None:
    store = open_store(StoreLocation(f"file://{tmp_path}"))
    write_client_mark(
        store, UNIFIED, ["root", "data/b/1", "data/a/1"], ["data/b/2"], [f"data/{n}/x" for n in range(20)]
    )
    mark = read_mark(store, "lake", NAMESPACE, "m1")
    seen = overview(store, mark)
    assert seen.largest_prefixes[:3] == (
        PrefixTotal("data/b/", 2, 0),
        PrefixTotal("(root)", 1, 0),
        PrefixTotal("data/0/", 1, 0),
    )
    assert len(seen.largest_prefixes) == 10
    assert seen.sample == ({"address": "root"}, {"address": "data/b/1"}, {"address": "data/a/1"})
    write_client_mark(store, UNIFIED, ["root"])
    with pytest.raises(MarkError, match="was changed after the mark was made"):
        overview(store, mark)


def test_the_first_objects_of_each_reason(tmp_path: Path) -> None:
    """Without pandas, which takes a fifth of a second to load: `show` needs it for nothing else."""
    at = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    rows = [
        {"address": f"data/{n % 2}/{n}", "size": n, "last_modified": at + timedelta(days=n), "reason": reason}
        for n, reason in enumerate(["expired", "never_committed"] * 6)
    ]
    content = part_content(pa.Table.from_pylist(rows, schema=PART_SCHEMA))
    (tmp_path / "part").write_bytes(content)
    code = (
        "import sys; from types import SimpleNamespace as S; from lakefs_gc.engine.records.mark_parts import overview; "
        "from lakefs_gc.storage.location import StoreLocation; from lakefs_gc.storage.open import open_store; "
        "store = open_store(StoreLocation(f'file://{sys.argv[1]}')); "
        "seen = overview(store, S(parts=[S(key='part', sha256=sys.argv[2])])); "
        "print([(total.prefix, total.objects, total.size_bytes) for total in seen.largest_prefixes]); "
        "print(list(seen.sample)); print('pandas' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path), hashlib.sha256(content).hexdigest()]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    prefixes, sample, has_pandas = ended.stdout.splitlines()
    assert prefixes == "[('data/1/', 6, 36), ('data/0/', 6, 30)]"
    assert sample == str([row | {"last_modified": str(row["last_modified"])} for row in rows[0:10:2] + rows[1:10:2]])
    assert has_pandas == "False"
