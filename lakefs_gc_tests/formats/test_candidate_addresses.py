"""Which addresses may be garbage, and which names lakeFS generates."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefs_gc.formats.candidate_addresses import (
    CANDIDATE_ADDRESS_REGEX,
    CHOSEN_NAME_REGEX,
    UNRECOGNIZED_NAME_REGEX,
    are_candidate_addresses,
    has_unrecognized_name,
    have_unrecognized_names,
    is_candidate_address,
)
from lakefs_gc_tests.golden import golden_file, scenarios
from lakefs_gc_tests.support.addresses import CANDIDATES, CHOSEN, ISSUED, ISSUED_IN_DATA, OTHERS, UNRECOGNIZED


@pytest.mark.parametrize("address", CANDIDATES)
def test_these_addresses_are_candidates(address: str) -> None:
    assert is_candidate_address(address)


@pytest.mark.parametrize("address", OTHERS)
def test_these_addresses_are_never_candidates(address: str) -> None:
    assert not is_candidate_address(address)


@pytest.mark.parametrize("name", scenarios())
def test_candidates_of_the_recordings(name: str) -> None:
    expected = json.loads(golden_file(name, "expected.json"))
    if name == "read-only":
        expected["delete"] = []
    deleted = [item if isinstance(item, str) else item["address"] for item in expected["delete"]]
    never = [address for addresses in expected["never_candidates"].values() for address in addresses]
    assert never
    assert [address for address in deleted if not is_candidate_address(address)] == []
    assert [address for address in never if is_candidate_address(address)] == []


@given(st.text("da/t.é_lakefsumy\n \x00😀", max_size=14) | st.sampled_from(CANDIDATES + OTHERS))
def test_the_three_forms_of_the_rule_agree(address: str) -> None:
    expected = is_candidate_address(address)
    assert (re.search(CANDIDATE_ADDRESS_REGEX, address) is not None) == expected
    assert are_candidate_addresses(pa.array([address])).to_pylist() == [expected]


def test_the_three_forms_agree_on_the_list() -> None:
    both = CANDIDATES + OTHERS
    expected = [True] * len(CANDIDATES) + [False] * len(OTHERS)
    assert [re.search(CANDIDATE_ADDRESS_REGEX, address) is not None for address in both] == expected
    assert are_candidate_addresses(pa.array(both)).to_pylist() == expected


@pytest.mark.parametrize("address", ISSUED)
def test_a_name_that_lakefs_generated_is_recognized(address: str) -> None:
    assert is_candidate_address(address)
    assert not has_unrecognized_name(address)


@pytest.mark.parametrize("address", UNRECOGNIZED)
def test_a_name_that_lakefs_did_not_generate_is_unrecognized(address: str) -> None:
    assert has_unrecognized_name(address)


@pytest.mark.parametrize("address", [*OTHERS, *(f"data/{name}" for name in UNRECOGNIZED)])
def test_only_names_at_the_root_are_unrecognized(address: str) -> None:
    assert not has_unrecognized_name(address)


@given(
    st.text("dcg0u1ksal6irqo/-_.x\n", max_size=22)
    | st.from_regex(UNRECOGNIZED_NAME_REGEX)
    | st.from_regex(r"\A[0-9a-f]{31,33}(-[0-9]{4,6}|_id|\.part_0000[0-9])?\Z")
    | st.from_regex(r"\A[0-9a-w]{19,20}[0g](_size|\.multipart)?\Z")
    | st.from_regex(r"\A[a-v]{19}[0g]\Z")
    | st.sampled_from(ISSUED + UNRECOGNIZED + OTHERS)
)
def test_the_three_forms_agree_on_unrecognized_names(address: str) -> None:
    expected = has_unrecognized_name(address)
    assert (re.search(UNRECOGNIZED_NAME_REGEX, address) is not None) == expected
    assert have_unrecognized_names(pa.array([address])).to_pylist() == [expected]


@pytest.mark.parametrize("name", scenarios())
def test_the_names_in_the_recordings_are_recognized(name: str) -> None:
    expected = json.loads(golden_file(name, "expected.json"))
    found = [item if isinstance(item, str) else item["address"] for item in (*expected["delete"], *expected["keep"])]
    hexadecimal = [address for address in found if re.fullmatch("[0-9a-f]{32}", address)]
    assert (len(hexadecimal) > 10) == (name == "old-layout")
    assert [address for address in hexadecimal if has_unrecognized_name(address)] == []


@pytest.mark.parametrize("address", [*ISSUED_IN_DATA, *ISSUED, *UNRECOGNIZED])
def test_lakefs_generates_these_names_in_data_or_they_are_at_the_root(address: str) -> None:
    assert not re.match(CHOSEN_NAME_REGEX, address)


@pytest.mark.parametrize("address", CHOSEN)
def test_lakefs_generates_no_such_name_in_data(address: str) -> None:
    assert re.match(CHOSEN_NAME_REGEX, address)


@pytest.mark.parametrize("name", ["esti-unified", "read-only", "retention-graph"])
def test_a_real_server_generated_all_names_in_data_of_these_recordings(name: str) -> None:
    expected = json.loads(golden_file(name, "expected.json"))
    found = [item if isinstance(item, str) else item["address"] for item in (*expected["delete"], *expected["keep"])]
    in_data = [address for address in found if address.startswith("data/")]
    assert in_data
    assert [address for address in in_data if re.match(CHOSEN_NAME_REGEX, address)] == []
