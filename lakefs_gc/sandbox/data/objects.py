"""Read, list, upload, copy, stage, link and delete the objects of a ref."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, cast

from lakefs_gc.errors import ObjectNotFoundError
from lakefs_gc.formats.address_readings import other_readings
from lakefs_gc.formats.addresses import relative_address
from lakefs_gc.formats.entry import AddressType, Entry, to_ns
from lakefs_gc.sandbox.context import Sandbox, writable
from lakefs_gc.sandbox.data.namespaces import relative_if_data, shown_address
from lakefs_gc.sandbox.data.streams import HashingReader, OpenedStream
from lakefs_gc.sandbox.problems import ApiError, NotFound, gone, invalid
from lakefs_gc.sandbox.state.records import Change, Record, overlay, present, record_of
from lakefs_gc.sandbox.versions.refs import Repository, Resolved

DEFAULT_CONTENT_TYPE = "application/octet-stream"
MAX_PATH_BYTES = 1024
MAX_DELETE_PATHS = 1000


@dataclass(frozen=True)
class Conditions:
    """The request's ``If-Match`` and ``If-None-Match`` (only ``*`` is supported), empty if absent."""

    if_match: str = ""
    if_none_match: str = ""

    def check(self, existing: Record | None) -> None:
        """Raise ``ApiError`` 412 unless the record at the path, or its absence, meets the conditions."""
        e_tag = existing.entry.e_tag if existing is not None else None
        if self.if_none_match == "*" and existing is not None:
            raise ApiError(412, "path already exists")
        if self.if_match and self.if_match.strip('"') != e_tag:
            raise ApiError(412, "Precondition failed")


@dataclass(frozen=True)
class Upload:
    """The description of an object that a client uploads."""

    path: str
    content_type: str = DEFAULT_CONTENT_TYPE
    metadata: dict[str, str] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)
    force: bool = False
    e_tag: str = ""
    """Replaces the MD5 of the content, for a multipart upload."""


@dataclass(frozen=True)
class Staged:
    """The description of an object that is already in a store; ``mtime`` in seconds since 1970."""

    path: str
    physical_address: str
    checksum: str
    size_bytes: int
    mtime: int | None = None
    content_type: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)
    force: bool = False


@dataclass(frozen=True)
class Replacing:
    """The metadata of a copy that differ from those of its source."""

    content_type: str = DEFAULT_CONTENT_TYPE
    metadata: dict[str, str] = field(default_factory=dict)


# -- reading


def find(sandbox: Sandbox, repository: Repository, ref: str, path: str) -> Record:
    """Return the record at a path of a ref. Raise ``NotFound``."""
    check_path(path)
    record = _find(sandbox, repository, sandbox.refs.resolve(repository.name, ref), path.encode())
    if record is None:
        raise NotFound
    return record


def walk(sandbox: Sandbox, repository: Repository, ref: str, start: bytes) -> Iterator[Record]:
    """Yield the records of a ref from the path ``start`` on. For a branch this includes staged records."""
    resolved = sandbox.refs.resolve(repository.name, ref)
    tree = sandbox.refs.commit(repository.name, resolved.commit_id).meta_range_id
    committed = sandbox.committed(repository).records(tree, start)
    if resolved.branch is None:
        return committed
    staged = sandbox.staging.changes(resolved.branch.tokens, start)
    return present(overlay([staged, (Change(record.key, record) for record in committed)]))


def open_bytes(sandbox: Sandbox, repository: Repository, entry: Entry) -> OpenedStream:
    """Open the content of an entry as a stream, which the caller closes. Raise ``ApiError`` 410 if it is deleted."""
    store, key = sandbox.namespaces.place(repository.storage_namespace, entry)
    try:
        return OpenedStream(store.open_read(key))
    except ObjectNotFoundError:
        raise gone() from None


# -- writing


def upload(sandbox: Sandbox, repository: Repository, branch: str, request: Upload, content: BinaryIO) -> Record:
    """Write the bytes to the store at a new address, and stage them at the path.

    As in lakeFS, the object exists before its entry, so an upload that is then rejected leaves garbage.
    """
    if not has_branch(sandbox, repository, branch):
        raise ApiError(404, f"branch '{branch}' not found")
    if request.conditions.if_none_match:
        request.conditions.check(_staged_or_committed(sandbox, repository, branch, request.path))
    address = sandbox.addresses.new_address()
    source = HashingReader(content)
    sandbox.namespaces.store(repository.storage_namespace).put_stream(address, cast(BinaryIO, source))
    entry = Entry(
        address=address,
        address_type=AddressType.RELATIVE,
        size_bytes=source.size_bytes,
        last_modified_ns=to_ns(sandbox.clock()),
        e_tag=request.e_tag or source.e_tag,
        metadata=request.metadata,
        content_type=request.content_type,
    )
    return _stage(sandbox, repository, branch, request.path, entry, request.conditions, force=request.force)


def stage(sandbox: Sandbox, repository: Repository, branch: str, request: Staged) -> Record:
    """Stage an existing object of any store, outside the namespace.

    A collector may already have listed an object inside the namespace as garbage, so only ``stage_inside_namespace``
    permits that.
    """
    shown_address(repository.storage_namespace, request.physical_address, AddressType.FULL)
    if not request.physical_address.startswith(f"{sandbox.namespaces.scheme}://"):
        kind = sandbox.namespaces.blockstore_type
        raise ApiError(400, f"physical address is not valid for block adapter: {kind}")
    if (
        not sandbox.options.stage_inside_namespace
        and _key_inside(sandbox, repository, request.physical_address) is not None
    ):
        raise ApiError(400, "physical address is inside the storage namespace: copy or link the object instead")
    return _stage_address(sandbox, repository, branch, request, request.checksum)


def link(sandbox: Sandbox, repository: Repository, branch: str, request: Staged) -> Record:
    """Stage an object that the client uploaded to an address from ``new_link``.

    The address is the token: it is signed, expires, and can be used once. A rejected request does not use it up. An
    address outside the namespace needs no token.
    """
    address, address_type = relative_if_data(repository.storage_namespace, request.physical_address)
    key = _key_inside(sandbox, repository, request.physical_address)
    is_refused = key is not None and not sandbox.options.stage_inside_namespace
    needs_token = address_type is AddressType.RELATIVE or is_refused
    if needs_token:
        address = address if key is None else key
        sandbox.signer.verify(repository.name, branch, request.path, address)
    checksum = request.checksum.strip(' "')
    if not checksum:
        raise ApiError(400, "checksum is required")
    with sandbox.database.write():
        was_unused = not needs_token or sandbox.link_tokens.use(repository.name, address)
        if sandbox.options.single_use_links and not was_unused:
            raise _already_used()
        return _stage_address(sandbox, repository, branch, request, checksum)


def check_link(sandbox: Sandbox, repository: Repository, branch: str, path: str, address: str) -> None:
    """Raise ``ApiError`` 400 unless a signed address, relative to the namespace, can be linked to this path."""
    sandbox.signer.verify(repository.name, branch, path, address)
    if sandbox.options.single_use_links and not sandbox.link_tokens.has(repository.name, address):
        raise _already_used()


def new_link(sandbox: Sandbox, repository: Repository, branch: str, path: str) -> str:
    """Return a signed address, relative to the namespace, to which a client may upload directly."""
    address = sandbox.addresses.new_address()
    signed = sandbox.signer.sign(repository.name, branch, path, address)
    sandbox.link_tokens.add(repository.name, signed)
    return signed


def copy(
    sandbox: Sandbox,
    repository: Repository,
    branch: str,
    path: str,
    source_ref: str,
    source_path: str,
    *,
    source_repository: Repository | None = None,
    replacing: Replacing | None = None,
    force: bool = False,
) -> Record:
    """Copy an object: its bytes to a new address of this repository, and an entry at the path.

    A copy of a staged object within its branch shares the address instead. ``source_repository`` is set if the source
    is in another repository. ``replacing`` has the metadata that the copy does not inherit from its source.
    """
    origin = source_repository or repository
    if not has_branch(sandbox, repository, branch):
        raise ApiError(404, f"branch '{branch}' not found")
    if sandbox.options.shallow_copies and origin.name == repository.name and source_ref in ("", branch):
        shared = _share(sandbox, repository, branch, path, source_path, replacing, force=force)
        if shared is not None:
            return shared
    source = find(sandbox, origin, source_ref or branch, source_path).entry
    address = sandbox.addresses.new_address()
    store, key = sandbox.namespaces.place(origin.storage_namespace, source)
    try:
        store.copy_to(key, sandbox.namespaces.store(repository.storage_namespace), address)
    except ObjectNotFoundError:
        raise gone() from None
    entry = _copied(sandbox, source, replacing)
    entry = replace(entry, address=address, address_type=AddressType.RELATIVE)
    return _stage(sandbox, repository, branch, path, entry, force=force)


def delete(sandbox: Sandbox, repository: Repository, branch: str, paths: Sequence[str], *, force: bool = False) -> None:
    """Delete paths from a branch. A path that does not exist is not an error."""
    writable(repository, force=force)
    while not _delete_if_unmoved(sandbox, repository, branch, paths):
        pass


def _delete_if_unmoved(sandbox: Sandbox, repository: Repository, branch: str, paths: Sequence[str]) -> bool:
    """Delete paths. Return False if the branch moved meanwhile.

    A path may then be neither staged any more nor in the old commit.
    """
    before = sandbox.refs.branch(repository.name, branch)
    tree = sandbox.refs.commit(repository.name, before.commit_id).meta_range_id
    tombstones = []
    for path in paths:
        key = path.encode()
        staged = sandbox.staging.get(before.tokens, key)
        if staged is not None or sandbox.committed(repository).get(tree, key) is not None:
            tombstones.append(Change(key, None))
    with sandbox.database.write():
        # Read the branch again, because a commit may have sealed its token meanwhile.
        current = sandbox.refs.branch(repository.name, branch)
        if current.commit_id != before.commit_id:
            return False
        sandbox.staging.put(current.staging_token, tombstones)
    return True


def update_metadata(sandbox: Sandbox, repository: Repository, branch: str, path: str, metadata: dict[str, str]) -> None:
    """Replace the user metadata of an object. A committed object is staged with it at the same address."""
    check_path(path)
    writable(repository)
    with sandbox.database.write():
        record = _staged_or_committed(sandbox, repository, branch, path)
        if record is None:
            what = f"update user metadata on {repository.name}/{branch}/{path}"
            raise ApiError(404, f"{what}: not found")
        _stage(sandbox, repository, branch, path, replace(record.entry, metadata=metadata))


def check_path(path: str, argument: str = "path") -> None:
    """Raise ``ApiError`` 400 for a path that lakeFS does not accept."""
    size = len(path.encode())
    if not size:
        raise ApiError(400, f"argument {argument}: missing path: required value: validation error")
    if size > MAX_PATH_BYTES:
        raise invalid(argument, "", f": {size} is above maximum length ({MAX_PATH_BYTES})")


def _find(sandbox: Sandbox, repository: Repository, resolved: Resolved, key: bytes) -> Record | None:
    if resolved.branch is not None:
        staged = sandbox.staging.get(resolved.branch.tokens, key)
        if staged is not None:
            return staged.record
    tree = sandbox.refs.commit(repository.name, resolved.commit_id).meta_range_id
    return sandbox.committed(repository).get(tree, key)


def _staged_or_committed(sandbox: Sandbox, repository: Repository, branch: str, path: str) -> Record | None:
    current = sandbox.refs.branch(repository.name, branch)
    return _find(sandbox, repository, Resolved(current.commit_id, current), path.encode())


def has_branch(sandbox: Sandbox, repository: Repository, branch: str) -> bool:
    """Return whether the branch exists."""
    try:
        sandbox.refs.branch(repository.name, branch)
    except NotFound:
        return False
    return True


def _stage_address(sandbox: Sandbox, repository: Repository, branch: str, request: Staged, checksum: str) -> Record:
    address, address_type = relative_if_data(repository.storage_namespace, request.physical_address)
    now_ns = to_ns(sandbox.clock())
    entry = Entry(
        address=address,
        address_type=address_type,
        size_bytes=request.size_bytes,
        last_modified_ns=now_ns if request.mtime is None else request.mtime * 1_000_000_000,
        e_tag=checksum,
        metadata=request.metadata,
        content_type=request.content_type or DEFAULT_CONTENT_TYPE,
    )
    return _stage(sandbox, repository, branch, request.path, entry, request.conditions, force=request.force)


def _stage(
    sandbox: Sandbox,
    repository: Repository,
    branch: str,
    path: str,
    entry: Entry,
    conditions: Conditions | None = None,
    *,
    force: bool = False,
) -> Record:
    check_path(path)
    writable(repository, force=force)
    record = record_of(path, entry)
    with sandbox.database.write():
        # The branch is read in the transaction that writes, so that no commit seals its token in between.
        current = sandbox.refs.branch(repository.name, branch)
        if conditions is not None and (conditions.if_match or conditions.if_none_match):
            conditions.check(_staged_or_committed(sandbox, repository, branch, path))
        sandbox.staging.put(current.staging_token, [Change(record.key, record)])
    return record


def _already_used() -> ApiError:
    return ApiError(400, "link address already used: link address invalid")


def _key_inside(sandbox: Sandbox, repository: Repository, url: str) -> str | None:
    """Return the key of a URL in the namespace, in any spelling, or None if the URL is outside the namespace."""
    folders = (repository.folder, sandbox.namespaces.by_folder(repository.folder))
    for reading in (url, *other_readings(url)):
        for folder in folders:
            if reading.startswith(folder):
                return reading.removeprefix(folder)
        key = sandbox.namespaces.key_by_links(repository.folder, reading)
        if key is not None:
            return key
    return None


def _share(
    sandbox: Sandbox,
    repository: Repository,
    branch: str,
    path: str,
    source_path: str,
    replacing: Replacing | None,
    *,
    force: bool,
) -> Record | None:
    """Stage and track a shallow copy in one transaction. Return None if the source is not staged."""
    check_path(source_path)
    with sandbox.database.write():
        current = sandbox.refs.branch(repository.name, branch)
        staged = sandbox.staging.get(current.tokens, source_path.encode())
        if staged is None or staged.record is None:
            return None
        source = staged.record.entry
        address = relative_address(source.address, source.address_type, repository.folder)
        if address is not None:  # objects outside the namespace are never collected
            sandbox.copies.add(repository.name, address)
        return _stage(sandbox, repository, branch, path, _copied(sandbox, source, replacing), force=force)


def _copied(sandbox: Sandbox, source: Entry, replacing: Replacing | None) -> Entry:
    entry = replace(source, last_modified_ns=to_ns(sandbox.clock()))
    if replacing is None:
        return entry
    return replace(entry, content_type=replacing.content_type, metadata=replacing.metadata)
