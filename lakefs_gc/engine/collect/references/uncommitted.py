"""Stage 2: the staged addresses.

The server writes its uncommitted addresses page by page, each as a Parquet file, into one folder for each run. The
executors read those files. The objects of a missing page would look like garbage, so the pages are counted and the
continuation tokens are checked (rule 3).
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.engine.collect.references.commit_graph import read_history_ahead
from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.data_files import rows_in
from lakefs_gc.engine.spark.local_rows import distinct_union, local_rows
from lakefs_gc.engine.spark.scale import in_arrow, spread
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.errors import CorruptFileError, IncompleteAnswerError, RepositoryNotFoundError, ServerError
from lakefs_gc.formats.address_readings import is_local, other_readings
from lakefs_gc.formats.addresses import key_as_path, spellings
from lakefs_gc.formats.uncommitted_parquet import read_uncommitted
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Heads
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

_READS_AT_ONCE = 4  # up to 20 MB each
_MAY_BE_READ_OTHERWISE = r"[%?\\]|(?:\A|/)\.{0,2}(?:/|\z)"
_CALLS_AT_ONCE = 16
_MAX_LISTS = 5
_LIST = "uncommitted"

OnPage = Callable[[int], None]
OnHeads = Callable[[Heads], None]


@dataclass(frozen=True)
class PreparedUncommitted:
    """The server's uncommitted list: its run id, its folder (empty if no page has a file), the number of pages.

    ``requests``: how many there were; more than pages if one got no answer, and was sent again. ``without_file`` has
    two tokens for each page without a file: the token of its request and the token in its answer.
    """

    run_id: str
    location: str
    pages: int
    pages_with_file: int
    requests: int
    without_file: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class _Listed:
    """The server's list, and the heads right before it. ``server_seconds`` is the duration of the server's work."""

    began_at: datetime
    heads: dict[str, str]
    prepared: PreparedUncommitted
    server_seconds: float


def begin_uncommitted(
    context: RunContext, run: GCRun, *, reads_history: bool = True, on_heads: OnHeads = lambda heads: None
) -> None:
    """Have the server begin its list now, and read the history meanwhile. Only after the store was listed (rule 1).

    ``on_heads`` gets the heads right before the list, in another thread; again if the server has to list again.
    """
    context.ahead.begin(run, _LIST, lambda: _list(context, run, reads_history=reads_history, on_heads=on_heads))


def is_begun(context: RunContext, run: GCRun) -> bool:
    """Return whether the server's list was begun in this process, and not taken yet."""
    return context.ahead.has(run, _LIST)


def uncommitted(context: RunContext, run: GCRun, *, reads_history: bool = True) -> StageOutput:
    """Have the server list the staged addresses, and read them. Columns: ``schemas.UNCOMMITTED``.

    ``facts`` has ``run_id``, which names the mark, ``pages``, ``files``, ``listed`` (the rows of the list, None if that
    is unknown), ``heads`` (branch to commit id, right before the list), and ``server_seconds``, the duration of the
    server's work. The list may have been begun before (``begin_uncommitted``). Unless ``reads_history`` is false, the
    history is read while the server works. Raises ``IncompleteAnswerError``.
    """
    spark, server = context.spark, context.server
    listed: _Listed | None = context.ahead.take(run, _LIST)
    if listed is None:
        listed = _list(context, run, lambda pages: RUN_PROGRESS.count("pages", pages), reads_history=reads_history)
    heads, prepared = listed.heads, listed.prepared
    store = context.open_store(run.store)
    files = _files(store, run, prepared)
    paths = spread(local_rows(spark, files, "file string, size_bytes long"), max(1, len(files)))
    addresses = [in_arrow(paths, _read_files(run.store, run.namespace), schemas.UNCOMMITTED)]
    # The list of a server with a local store omits the objects that were linked by its own folder. Where only mounts
    # tell another name, such objects are rare, and `unlisted_changes` finds them by their number.
    has_names = is_local(run.namespace) or len(spellings(run.namespace, run.store.url)) > 1
    branches = (heads.keys() if has_names else set()) | _forgotten(server, run.repository, prepared)
    if branches:
        shown = [(address,) for address in _shown_uncommitted(server, run, sorted(branches))]
        addresses.append(local_rows(spark, shown, schemas.UNCOMMITTED))
    return StageOutput(
        dataframe=distinct_union(addresses),
        began_at=listed.began_at,
        facts={
            "run_id": prepared.run_id,
            "pages": prepared.pages,
            "files": len(files),
            "listed": rows_in(store, [file for file, _ in files]) if _is_each_page_once(prepared, files) else None,
            "heads": heads,
            "server_seconds": listed.server_seconds,
        },
    )


def _list(
    context: RunContext,
    run: GCRun,
    on_page: OnPage = lambda pages: None,
    *,
    reads_history: bool = True,
    on_heads: OnHeads = lambda heads: None,
) -> _Listed:
    """Return a list during which no branch was deleted; the last of several, if one was during each.

    When a branch is deleted while the server writes a page, the answer for that page has no file, even if other
    branches have staged entries (lakeFS 1.84, ``pkg/catalog/gc_write_uncommitted.go``). If it was the last branch, the
    call fails as for an unknown repository. ``_forgotten`` reads the branches of such pages, one by one, in the last
    list. It also handles a branch that was created and deleted meanwhile, or deleted and created again.
    """
    server, repository, began_at = context.server, run.repository, context.clock()
    listed: _Listed | None = None
    for _ in range(_MAX_LISTS):
        # The list omits the entries that these heads contain: see ``hidden_twins``.
        heads = server.heads_of(repository)
        on_heads(heads)
        if reads_history:
            read_history_ahead(context, run, heads.values())
        try:
            prepared = prepare_uncommitted(server, repository, context.safety.max_uncommitted_pages, on_page)
        except RepositoryNotFoundError:
            if heads.keys() <= server.heads_of(repository).keys():
                raise
        else:
            is_whole = prepared.pages_with_file == prepared.pages
            listed = _Listed(began_at, heads, prepared, round((context.clock() - began_at).total_seconds(), 1))
            if is_whole or heads.keys() <= server.heads_of(repository).keys():
                return listed
        logger.warning(
            "repository %s: a branch was deleted while the server listed uncommitted data, listing again", repository
        )
    if listed is None:
        raise IncompleteAnswerError(
            f"Branches of {repository} were deleted during each of {_MAX_LISTS} lists of uncommitted data, and the "
            "server ended none of these lists",
            remedy="Start a new run when fewer branches are deleted",
        )
    return listed


def prepare_uncommitted(
    server: LakeFSClient, repository: str, max_pages: int, on_page: OnPage = lambda pages: None
) -> PreparedUncommitted:
    """Request page after page until the server reports the last one. ``on_page`` gets the number of pages so far.

    Raises ``IncompleteAnswerError`` when a continuation token is repeated (a server with too small a page size or page
    time never advances), when the run or its folder changes between pages, or after ``max_pages``.
    """
    tokens_seen: set[str] = set()
    locations: set[str] = set()
    without_file: list[tuple[str, str]] = []
    token, run_id, pages, pages_with_file, requests = "", "", 0, 0, 0
    while True:
        request_token, page = token, server.prepare_uncommitted(repository, token)
        pages, requests = pages + 1, requests + page.requests
        if run_id and page.run_id != run_id:
            raise IncompleteAnswerError(
                f"The server changed the run of its uncommitted list from {run_id} to {page.run_id}",
                remedy="Start a new run",
            )
        run_id, token = page.run_id, page.continuation_token
        if page.location:
            locations.add(page.location)
            pages_with_file += 1
        else:
            without_file.append((request_token, token))
        if len(locations) > 1:
            raise IncompleteAnswerError(
                f"The uncommitted list of run {run_id} is in two folders: {', '.join(sorted(locations))}",
                remedy="Start a new run",
            )
        if not token:
            location = "".join(locations)
            return PreparedUncommitted(run_id, location, pages, pages_with_file, requests, tuple(without_file))
        if token in tokens_seen:
            raise IncompleteAnswerError(
                f"The server's uncommitted list of {repository} does not advance: page {pages} repeats a continuation "
                "token",
                remedy="Raise ugc.prepare_interval and ugc.prepare_max_file_size in the lakeFS server's configuration",
            )
        if pages >= max_pages:
            raise IncompleteAnswerError(
                f"The server's uncommitted list of {repository} is not finished after {pages} pages",
                remedy="Raise safety.max_uncommitted_pages if the repository has that much uncommitted data",
            )
        tokens_seen.add(token)
        logger.debug("repository %s: uncommitted data, page %d", repository, pages)
        on_page(pages)


def _is_each_page_once(prepared: PreparedUncommitted, files: list[tuple[str, int]]) -> bool:
    """Return whether the rows of these files are those of the list. A repeated call writes its page twice.

    The number of files alone does not tell: where a page is there twice, an old list may lack another one.
    """
    return len(files) == prepared.pages_with_file and prepared.requests == prepared.pages


def _files(store: ObjectStore, run: GCRun, prepared: PreparedUncommitted) -> list[tuple[str, int]]:
    """Return the keys of the files of all pages, and their sizes in bytes.

    A repeated call writes a file twice, so there may be more of them.
    """
    if not prepared.location:
        return []
    folder = run.key_of(prepared.location).rstrip("/") + "/"
    files = [
        file
        for batch in store.list(folder)
        for file in zip(batch.column("address").to_pylist(), batch.column("size").to_pylist(), strict=True)
    ]
    if len(files) < prepared.pages_with_file:
        raise IncompleteAnswerError(
            f"{run.namespace}{folder} has {len(files)} files, but the server wrote {prepared.pages_with_file} pages",
            remedy="Check that these credentials can list the whole bucket, then start a new run",
        )
    return files


@worker
def _read_files(batches: Batches, store: StoreLocation, folder: str) -> Batches:
    sizes = {row["file"]: row["size_bytes"] for batch in batches for row in batch.to_pylist()}
    source = worker_store(store)
    for key, data in source.read_many(sizes, concurrency=_READS_AT_ONCE):
        # Nothing in it tells which list it is of. It may be the answer to another request: see `named_files`.
        if len(data) != sizes[key]:
            raise CorruptFileError(key, f"the store lists it with {sizes[key]:,} bytes, but {len(data):,} were read")
        if source.read(key) != data:
            raise CorruptFileError(key, "it was read twice, with different content")
        rows = read_uncommitted(data, key)
        yield rows
        # The file does not contain whether an address was full. lakeFS decodes full addresses when it reads them.
        escaped = rows.column("address").filter(
            pc.match_substring_regex(rows.column("address"), _MAY_BE_READ_OTHERWISE)
        )
        others = [reading for address in escaped.to_pylist() for reading in other_readings(address)]
        as_paths = (key_as_path(address, folder, folder) for address in escaped.to_pylist())
        others += [key for key in as_paths if key is not None]
        if others:
            yield pa.RecordBatch.from_arrays([pa.array(others, pa.string())], schema=rows.schema)


def _forgotten(server: LakeFSClient, repository: str, prepared: PreparedUncommitted) -> set[str]:
    """Return the branches that pages without a file cover. Such a page does not prove that they have nothing staged.

    The deleted branch that caused such a page (``_list``) may have been created after the heads were read, or may exist
    again under its old name.
    """
    spans = [(_branch_in(requested), _branch_in(answered)) for requested, answered in prepared.without_file]
    if not spans:
        return set()
    existing = server.heads_of(repository)
    return {branch for branch in existing for first, last in spans if first <= branch and (branch <= last or not last)}


def _branch_in(token: str) -> str:
    """Return the branch at which a continuation token continues. Empty without a token, and if it is unreadable."""
    try:
        return str(json.loads(base64.b64decode(token, validate=True))["branch"])
    except (ValueError, KeyError, TypeError):
        return ""


def _shown_uncommitted(server: LakeFSClient, run: GCRun, branches: Iterable[str]) -> Iterator[str]:
    """Yield the addresses of the staged objects of branches, from the API.

    A server with a local store issues addresses with its own folder (``local:///folder/...``) and stores them in full.
    Its list contains only addresses that begin with the namespace (``pkg/catalog/gc_write_uncommitted.go``), so it
    omits them. Raises ``NamespaceError`` for an address that may be another spelling of the folder.
    """
    known = run.known_folders
    diffs = map_unordered(lambda branch: _staged_paths(server, run.repository, branch), branches, _CALLS_AT_ONCE)
    staged = ((branch, path) for branch, paths in diffs for path in paths)
    for _, url in map_unordered(lambda at: _shown(server, run.repository, *at), staged, _CALLS_AT_ONCE):
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
        if error.facts.get("status") != 410:
            raise
    # lakeFS answers 410 for an entry that is marked as deleted, but a proxy may answer it, too. The list decides.
    try:
        return server.shown_objects(repository, branch, 1, prefix=path).get(path, "")
    except RepositoryNotFoundError:  # the branch was deleted meanwhile
        return ""
