"""How many keys a second one process lists from S3: ``python -m lakefs_gc_tests.benchmarks.s3_listing``.

The server is simulated (pages made in advance, in a process of its own), so that the figure is the client's.  On few
cores the two share them: keys per second of the client's processor time say what one core can do.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from urllib.parse import parse_qs, quote_plus

from lakefs_gc.storage.base import StoreLocation
from lakefs_gc.storage.fan_out import list_concurrently
from lakefs_gc.storage.open import open_store

PAGE_KEYS = 1000
SLICES = 200
PAGES_OF_SLICE = 10
PLACEHOLDER = b"@PREFIX@"


def page(number: int, last: bool) -> bytes:
    """A page as AWS writes it, with keys as long as those of objects that were linked."""
    objects = "".join(
        f"<Contents><Key>@PREFIX@{quote_plus(f'c{number:09d}{i:010d},{i:043d}')}</Key>"
        f"<LastModified>2025-06-01T12:00:00.000Z</LastModified><ETag>&quot;{i:032x}&quot;</ETag>"
        f"<Size>{1048576 + i}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for i in range(PAGE_KEYS)
    )
    token = "" if last else f"<NextContinuationToken>{number + 1}</NextContinuationToken>"
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>b</Name>{token}<KeyCount>{PAGE_KEYS}</KeyCount><EncodingType>url</EncodingType>"
        f"<IsTruncated>{'false' if last else 'true'}</IsTruncated>{objects}</ListBucketResult>"
    ).encode()


def serve(ready: Connection) -> None:
    pages = [page(number, number == PAGES_OF_SLICE - 1) for number in range(PAGES_OF_SLICE)]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            query = parse_qs(head.split(b" ")[1].partition(b"?")[2].decode())
            while (await reader.readline()).strip():
                pass
            number = int(query.get("continuation-token", ["0"])[0])
            body = pages[number].replace(PLACEHOLDER, query["prefix"][0].encode())
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def main() -> None:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    process.start()
    os.environ |= {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{here.recv()}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    store = open_store(StoreLocation("s3://bucket/namespace"))
    slices = [f"data/g{number:019d}/" for number in range(SLICES)]
    for concurrency in (1, 4, 16):
        wall, processor = time.perf_counter(), time.process_time()
        rows = sum(batch.num_rows for batch in list_concurrently(store, slices, concurrency))
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        sys.stdout.write(
            f"{rows} keys, {concurrency} at once: {rows / wall:,.0f} keys/s, "
            f"{rows / processor:,.0f} keys/s of processor time\n"
        )
    process.terminate()


if __name__ == "__main__":
    main()
