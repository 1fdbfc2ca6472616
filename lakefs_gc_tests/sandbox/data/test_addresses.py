"""Slices and signed addresses."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import timedelta

import pytest

from lakefs_gc.formats.ids import is_slice_id, new_xid, reversed_id_time, xid_time
from lakefs_gc.sandbox.data.addresses import AddressProvider, AddressSigner
from lakefs_gc.sandbox.problems import ApiError
from lakefs_gc_tests.support.fake_clock import FakeClock

DAY_SECONDS = 86_400


def slice_of(address: str) -> str:
    folder, name, object_id = address.split("/")
    assert folder == "data"
    assert is_slice_id(name)
    assert len(object_id) == 20
    return name


def test_a_slice_ends_after_its_lifetime(clock: FakeClock) -> None:
    provider = AddressProvider(clock, slice_seconds=3600, slice_size=50_000)
    first = provider.new_address()
    clock.advance(hours=1)
    assert slice_of(provider.new_address()) == slice_of(first)
    clock.advance(seconds=1)
    second = provider.new_address()
    assert slice_of(second) < slice_of(first), "the newest slice sorts first"
    assert reversed_id_time(slice_of(second)) == clock.now
    assert xid_time(second.split("/")[2]) == clock.now


def test_a_slice_ends_when_it_is_full(clock: FakeClock) -> None:
    provider = AddressProvider(clock, slice_seconds=3600, slice_size=3)
    slices = [slice_of(provider.new_address()) for _ in range(7)]
    assert slices[0] == slices[2]
    assert slices[3] == slices[5]
    assert len(set(slices)) == 3


def test_each_process_start_opens_a_slice_and_addresses_never_repeat(clock: FakeClock) -> None:
    providers = [AddressProvider(clock, slice_seconds=3600, slice_size=100) for _ in range(3)]
    addresses = [provider.new_address() for provider in providers for _ in range(100)]
    assert len({slice_of(address) for address in addresses}) == 3
    assert len(set(addresses)) == 300


@pytest.fixture
def signer(clock: FakeClock) -> AddressSigner:
    return AddressSigner("key", clock, lifetime_seconds=DAY_SECONDS)


def refusal(signer: AddressSigner, address: str, path: str = "a/b", branch: str = "main") -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        signer.verify("repo", branch, path, address)
    return caught.value.status, caught.value.message


def test_a_signature_is_for_one_repository_branch_and_path(signer: AddressSigner, clock: FakeClock) -> None:
    signed = signer.sign("repo", "main", "a/b", f"data/slice/{new_xid(clock.now)}")
    signer.verify("repo", "main", "a/b", signed)
    wrong = (400, "invalid address signature: invalid address")
    assert refusal(signer, signed, path="a/c") == wrong
    assert refusal(signer, signed, branch="dev") == wrong
    address, _, signature = signed.partition(",")
    tampered = signature[:-2] + ("A" if signature[-2] != "A" else "B") + signature[-1]
    assert refusal(signer, f"{address},{tampered}") == wrong
    assert refusal(signer, address) == (400, "address is not signed: link address invalid")
    status, message = refusal(signer, f"{address},!!")
    assert status == 400
    assert message.startswith('malformed address signature: {"Repository":"repo","Branch":"main","Path":"a/b"')


def test_a_signature_equals_that_of_lakefs_with_the_same_key(signer: AddressSigner, clock: FakeClock) -> None:
    address = f"data/slice/{new_xid(clock.now)}"
    fields = {"Repository": "repo", "Branch": "main", "Path": "p", "PhysicalAddress": address}
    text = json.dumps(fields, separators=(",", ":")).encode()
    digest = hmac.new(b"key", text, hashlib.sha256).digest()
    expected = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert signer.sign("repo", "main", "p", address) == f"{address},{expected}"
    assert len(expected) == 43


def test_a_signature_expires_a_day_after_the_address_was_issued(signer: AddressSigner, clock: FakeClock) -> None:
    for hours, expired in ((23, False), (24, False), (25, True)):
        issued_at = clock.now - timedelta(hours=hours)
        signed = signer.sign("repo", "main", "a/b", f"data/slice/{new_xid(issued_at)}")
        if expired:
            assert refusal(signer, signed) == (400, "link address expired")
        else:
            signer.verify("repo", "main", "a/b", signed)


def test_an_address_without_a_time_is_an_error_of_the_server(signer: AddressSigner) -> None:
    signed = signer.sign("repo", "main", "a/b", "data/slice/not-an-xid")
    assert refusal(signer, signed) == (500, "xid: invalid ID")
