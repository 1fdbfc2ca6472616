"""Stage 2: what is staged.

The server writes its uncommitted addresses page by page, a Parquet file each, into one directory per run; the executors
read those files.  A page that was not asked for is data that would look like garbage, so the pages are counted and the
continuation is watched (rule 3).
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.data_files import rows_in
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.workers import Batches, strings, worker, worker_store
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.errors import IncompleteAnswerError, RepositoryNotFoundError, ServerError
from lakefs_gc.formats.addresses import key_as_path, other_readings
from lakefs_gc.formats.uncommitted_parquet import read_uncommitted
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

_READS_AT_ONCE = 4  # up to 20 MB each
_MAY_BE_READ_OTHERWISE = r"[%?]|(?:\A|/)\.{0,2}(?:/|\z)"
_CALLS_AT_ONCE = 16
_MOST_LISTS = 5


@dataclass(frozen=True)
class PreparedUncommitted:
    """The server's uncommitted list: its run id, its directory (empty: no page has a file), how many pages it took.

    ``without_file`` has, of each page that came without a file, the token that asked for it and the one that it gave.
    """

    run_id: str
    location: str
    pages: int
    pages_with_file: int
    without_file: tuple[tuple[str, str], ...] = ()


def uncommitted(context: RunContext, run: GCRun) -> StageOutput:
    """Have the server list what is staged, and read it.  Columns: ``schemas.UNCOMMITTED``.

    ``facts`` has ``run_id``, which names the mark, ``pages``, ``files``, ``listed`` (how many rows the list has; None
    where that is not known), ``heads`` (branch to commit id, as they were just before), ``server_seconds``, for which
    the server was at work.  Raises ``IncompleteAnswerError``.
    """
    spark, server, clock = context.spark, context.server, context.clock
    began_at = clock()
    asked_at = clock()
    heads, prepared = _list_of_standing_branches(server, run.repository, context.safety.max_uncommitted_pages)
    server_seconds = round((clock() - asked_at).total_seconds(), 1)
    store = context.open_store(run.store)
    files = _files(store, run, prepared)
    paths = local_rows(spark, [(file,) for file in files], "file string").repartition(max(1, len(files)))
    addresses = paths.mapInArrow(_read_files(run.store, run.namespace), schemas.UNCOMMITTED)
    # A local store's server leaves out of its list what was linked by its folder.
    asked = (heads.keys() if len(run.folders) > 1 else set()) | _forgotten(server, run.repository, prepared)
    if asked:
        shown = [(address,) for address in _shown_uncommitted(server, run, sorted(asked))]
        addresses = addresses.union(local_rows(spark, shown, schemas.UNCOMMITTED))
    return StageOutput(
        dataframe=addresses.distinct(),
        began_at=began_at,
        facts={
            "run_id": prepared.run_id,
            "pages": prepared.pages,
            "files": len(files),
            # A call that was repeated wrote its page twice.
            "listed": rows_in(store, files) if len(files) == prepared.pages_with_file else None,
            "heads": heads,
            "server_seconds": server_seconds,
        },
    )


def _list_of_standing_branches(
    server: LakeFSClient, repository: str, max_pages: int
) -> tuple[dict[str, str], PreparedUncommitted]:
    """The heads just before, and a list during which no branch went away that could have taken others with it.

    A server that finds a branch deleted while it writes a page forgets that it has written anything: the page comes
    without a file, whatever other branches have staged (lakeFS 1.84, ``pkg/catalog/gc_write_uncommitted.go``).  If it
    was the last branch, the call fails as if there were no such repository.  A branch that came and went meanwhile, or
    is back, is not noticed here: see ``_forgotten``.
    """
    for _ in range(_MOST_LISTS):
        # What the list leaves out, it leaves out because of these: see ``hidden_twins``.
        heads = dict(server.branch_heads(repository))
        try:
            prepared = prepare_uncommitted(server, repository, max_pages)
        except RepositoryNotFoundError:
            if heads.keys() <= dict(server.branch_heads(repository)).keys():
                raise
        else:
            is_whole = prepared.pages_with_file == prepared.pages
            if is_whole or heads.keys() <= dict(server.branch_heads(repository)).keys():
                return heads, prepared
        logger.warning("a branch of %s was deleted while the server listed what is uncommitted: once more", repository)
    raise IncompleteAnswerError(
        f"branches of {repository} were deleted during each of {_MOST_LISTS} lists of what is uncommitted, and such a "
        "list may lack what other branches have staged",
        remedy="start a new run when fewer branches are deleted",
    )


def prepare_uncommitted(server: LakeFSClient, repository: str, max_pages: int) -> PreparedUncommitted:
    """Ask for page after page until the server says it has finished.

    Raises ``IncompleteAnswerError`` when a continuation token comes twice (a server with a page size or time that is
    too small stands still for ever), when the run or its directory changes on the way, or after ``max_pages``.
    """
    tokens_seen: set[str] = set()
    locations: set[str] = set()
    without_file: list[tuple[str, str]] = []
    token, run_id, pages, pages_with_file = "", "", 0, 0
    while True:
        asked_with, page = token, server.prepare_uncommitted(repository, token)
        pages += 1
        if run_id and page.run_id != run_id:
            raise IncompleteAnswerError(
                f"the server changed the run of its uncommitted list from {run_id} to {page.run_id}",
                remedy="start a new run",
            )
        run_id, token = page.run_id, page.continuation_token
        if page.location:
            locations.add(page.location)
            pages_with_file += 1
        else:
            without_file.append((asked_with, token))
        if len(locations) > 1:
            raise IncompleteAnswerError(
                f"the uncommitted list of run {run_id} is in two places: {', '.join(sorted(locations))}",
                remedy="start a new run",
            )
        if not token:
            return PreparedUncommitted(run_id, "".join(locations), pages, pages_with_file, tuple(without_file))
        if token in tokens_seen:
            raise IncompleteAnswerError(
                f"the server's uncommitted list of {repository} does not advance: after {pages} pages it gave the same "
                "continuation token again",
                remedy="raise ugc.prepare_interval and ugc.prepare_max_file_size in the lakeFS server's configuration",
            )
        if pages >= max_pages:
            raise IncompleteAnswerError(
                f"the server's uncommitted list of {repository} is not finished after {pages} pages",
                remedy="raise safety.max_uncommitted_pages if the repository has that much uncommitted data",
            )
        tokens_seen.add(token)
        logger.info("uncommitted data of %s: page %d", repository, pages)


def _files(store: ObjectStore, run: GCRun, prepared: PreparedUncommitted) -> list[str]:
    """Keys of the files of all pages.  There may be more than pages: a call that was repeated wrote twice."""
    if not prepared.location:
        return []
    folder = run.key_of(prepared.location).rstrip("/") + "/"
    files = [key for batch in store.list(folder) for key in batch.column("address").to_pylist()]
    if len(files) < prepared.pages_with_file:
        raise IncompleteAnswerError(
            f"{run.namespace}{folder} holds {len(files)} files, but the server wrote {prepared.pages_with_file} pages",
            remedy="check that these credentials see the whole bucket, and start a new run",
        )
    return files


@worker
def _read_files(batches: Batches, store: StoreLocation, folder: str) -> Batches:
    for key, data in worker_store(store).read_many(strings(batches, "file"), concurrency=_READS_AT_ONCE):
        rows = read_uncommitted(data, key)
        yield rows
        # Whether an address was a full one, which lakeFS decodes when it reads, is not said.
        escaped = rows.column("address").filter(
            pc.match_substring_regex(rows.column("address"), _MAY_BE_READ_OTHERWISE)
        )
        others = [reading for address in escaped.to_pylist() for reading in other_readings(address)]
        as_paths = (key_as_path(address, folder, folder) for address in escaped.to_pylist())
        others += [key for key in as_paths if key is not None]
        if others:
            yield pa.RecordBatch.from_arrays([pa.array(others, pa.string())], schema=rows.schema)


def _forgotten(server: LakeFSClient, repository: str, prepared: PreparedUncommitted) -> set[str]:
    """The branches of which pages without a file should have told: such a page is no proof that nothing is staged.

    The branch that made the server forget the others (``_list_of_standing_branches``) may have come after the first
    look at the heads, or be there again under its old name.
    """
    spans = [(_branch_in(asked_with), _branch_in(given)) for asked_with, given in prepared.without_file]
    if not spans:
        return set()
    standing = [branch for branch, _ in server.branch_heads(repository)]
    return {branch for branch in standing for first, last in spans if first <= branch and (branch <= last or not last)}


def _branch_in(token: str) -> str:
    """The branch that a continuation token goes on with; empty for no token, and for one that does not tell."""
    try:
        return str(json.loads(base64.b64decode(token, validate=True))["branch"])
    except (ValueError, KeyError, TypeError):
        return ""


def _shown_uncommitted(server: LakeFSClient, run: GCRun, branches: Iterable[str]) -> Iterator[str]:
    """What branches show without a commit, as the API tells.

    A server with a local store hands out addresses by its folder (``local:///folder/...``), keeps them in full, and
    leaves them out of its list, which has what begins with the namespace (``pkg/catalog/gc_write_uncommitted.go``).
    Raises ``NamespaceError`` for an address that may be one more spelling of the folder.
    """
    known = run.known_folders
    diffs = map_unordered(lambda branch: _staged_paths(server, run.repository, branch), branches, _CALLS_AT_ONCE)
    staged = ((branch, path) for branch, paths in diffs for path in paths)
    for _, url in map_unordered(lambda place: _shown(server, run.repository, *place), staged, _CALLS_AT_ONCE):
        if url:
            yield from known.keys_of(url)


def _staged_paths(server: LakeFSClient, repository: str, branch: str) -> list[str]:
    try:
        return [change.path for change in server.changes(repository, branch)]
    except RepositoryNotFoundError:  # the branch was deleted meanwhile
        return []


def _shown(server: LakeFSClient, repository: str, branch: str, path: str) -> str:
    try:
        return server.shown_address(repository, branch, path)
    except ServerError as error:
        if error.facts.get("status") == 410:  # marked as deleted: nobody can read it
            return ""
        raise
