"""Moves of the folder, the clocks and the users."""

from __future__ import annotations

from lakefs_sdk.exceptions import ApiException

from lakefs_gc.errors import (
    ClockSkewError,
    NamespaceError,
)
from lakefs_gc_tests.properties.moves.shared import new_mark, sweep_safely, usual_overrides
from lakefs_gc_tests.properties.seeded import SeededHistory, ViolationError, clock_off_by
from lakefs_gc_tests.support.collector import marked


def folders(h: SeededHistory) -> list[str]:
    """Entries name objects by every spelling of the server's folder. The collector reads the files through a link."""
    folder, base = str(h.repository.folder), h.lake.folder
    (base / "mounted").symlink_to(base / "objects")
    (base / "objects" / "alias").symlink_to(h.repository.folder)
    spelled = {
        "folder": f"local://{folder}/",
        "percent": f"local://{folder.replace('/lake', '/%6Cake')}/",
        "parents": f"local://{folder}/../lake/",
        "dots": f"local://{folder}/./",
        "slashes": f"local:///{folder}/",
        "relative parents": "local://other/../lake/",
        "link": f"local://{base}/objects/alias/",
        "parents, link": f"local://{folder}/../alias/",
        "mount": f"local://{base}/mounted/lake/",
    }
    used, named = [], set()
    keys = sorted(key for key in h.repository.objects() if key.startswith("data/"))
    for number in range(h.random.randint(1, 4)):
        name, key = h.random.choice(sorted(spelled)), h.random.choice(keys)
        repository = h.random.choice((h.repository, h.repository, h.other))
        size = (h.repository.folder / key).stat().st_size
        try:
            repository.stage(f"spelled-{number}", spelled[name] + key, size_bytes=size)
        except ApiException:  # the server rejects such an address, so nothing references it
            continue
        used.append(name)
        named.add(key)
        if repository is h.other:
            h._shared.add(key)
        if repository is h.other or h.random.random() < 0.5:
            h.do(lambda _, repository=repository: repository.commit())  # type: ignore[misc]
    at = h.random.choice(("mounted", "objects"))
    collector = h.collector(mounts={"local://": (base / at).as_uri() + "/"})
    h.drawn = [f"folders: {name}" for name in (*used, at)]
    unexplained = not _is_told(h) or {"link", "parents, link", "mount"} & set(used)
    h.finishable = not unexplained
    with h.nothing_live_is_lost(also=named), h.may_fail(*([NamespaceError] if unexplained else [])):
        mark = new_mark(h, collector)
        collector.give_approval(mark, usual_overrides(mark))
        sweep_safely(h, collector, mark)
    return h.drawn


def _is_told(h: SeededHistory) -> bool:
    return str(h.repository.folder) in h.server.issued_address("lake", "main")


def clocks(h: SeededHistory) -> list[str]:
    """This machine's clock differs from the store's, in the mark or in the sweep."""
    seconds = h.random.choice((-1, 1)) * h.random.choice((10, 200, 290, 320, 4000, 100_000))
    over = abs(seconds) > 300
    h.drawn = [f"clocks: {seconds} s"]
    h.repository.put_stray("data/edge/newer", age_hours=23.95)
    h.repository.put_stray("data/edge/older", age_hours=24.02)
    collector = h.collector()
    if over and h.random.random() < 0.5:
        with clock_off_by(seconds), h.must_fail(ClockSkewError):
            collector.materialize("store_listing")
        return ["clocks: over, mark"]
    with clock_off_by(0 if over else seconds):
        mark = new_mark(h, collector)
    there = {"data/edge/newer", "data/edge/older"} & marked(h.repository, mark)
    if there - h.reachable() > {"data/edge/older"} or "data/edge/newer" in there:
        raise ViolationError(f"the clock differs by {seconds} s, and an object newer than the cutoff is marked")
    collector.give_approval(mark, usual_overrides(mark))
    with clock_off_by(seconds):
        if over:
            with h.must_fail(ClockSkewError):
                collector.sweep_approved(mark)
            return ["clocks: over, sweep"]
        sweep_safely(h, collector, mark)
    return ["clocks: within"]


def meanwhile(h: SeededHistory) -> list[str]:
    """Users change the repository before each second look of a sweep, and the mark may be swept again."""
    collector = h.collector()
    h.marks.append((collector, new_mark(h, collector)))
    h._count_hidden(collector)
    h.marked -= 1
    h.users(0, 4)
    for _ in range(h.random.randint(1, 2)):
        h.sweep(0, [h.operation() for _ in range(3)])
    return ["meanwhile"]
