"""The targets of the fuzzers, read without one: seeds, and what the fuzzers and we have found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.targets import TARGETS, Target, clean

pytestmark = pytest.mark.anypython

_SIZES = b"\x40\0\x08\0\0\0"
FOUND: dict[str, tuple[bytes, ...]] = {
    "header": (
        _SIZES + b'{"table":"x","fields":[{"name":"a","type":"int64","code":"q",'
        b'"offset":Infinity,"unit":null,"doc":"","values":[]}]}',
        _SIZES + b"[" * 8000,
    ),
    "wire": (
        b'\0{"error":{"code":"x","status":Infinity,"exit_code":1,"message":"","help":"",'
        b'"detail":{}}}',
        *(bytes([kind]) + b'{"sql":"x","timeout_s":1' + b"0" * 400 + b"}" for kind in range(64)),
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _scratch() -> Iterator[None]:
    """The folder in which files are written goes with the tests, not with the process."""
    yield
    clean()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_target_reads_its_seeds_and_what_was_found(target: Target) -> None:
    """Whole, cut off and with each of the first bytes flipped: no exception leaves a parser."""
    for seed in (*target.seeds[:3], *target.seeds[-1:]):
        for data in (seed, seed[: len(seed) // 2], b""):
            target.read(data)
        for place in range(0, min(len(seed), 128), 8):
            target.read(seed[:place] + bytes([seed[place] ^ 0xFF]) + seed[place + 1 :])
    for data in FOUND.get(target.name, ()):
        target.read(data)
