"""Fingerprints of addresses: of their bytes alone, and the same in every version that reads a stored index."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakefs_gc.engine.workspace.fingerprints import fingerprints


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(["a" * 16, "b" * 15])))
def test_a_fingerprint_depends_on_the_address_alone(addresses: list[str]) -> None:
    alone = [int(fingerprints(pa.array([address]))[0]) for address in addresses]
    together = pa.array([*addresses, "z" * 30], pa.string())
    assert fingerprints(together)[:-1].tolist() == alone
    assert fingerprints(together.slice(1))[:-1].tolist() == alone[1:]


def test_fingerprints_are_those_of_an_index_that_is_stored() -> None:
    # Indexes of earlier versions have these. With others, they would say that a range does not have an address.
    addresses = ["data/gs3q7k2abc/cs3q7k2def", "a" * 16, "a" * 15, "", "größer als sechzehn Bytes"]
    assert fingerprints(pa.array(addresses)).tolist() == [
        1209914302,
        1243143102,
        2584474866,
        634351890,
        325027899,
    ]
