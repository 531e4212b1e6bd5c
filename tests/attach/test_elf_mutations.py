"""Damaged images of programs in memory: an address in what is loaded, none, or a sentence."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from probing.attach.injectors.borrowing.elf import EXECUTABLE, Image
from probing.attach.injectors.borrowing.memory import PAGE, find_interpreter, read_maps
from probing.attach.injectors.refusal import CannotInject
from tests.attach.test_injection_elf import BASE, SYMBOLS, build_image, reader

pytestmark = pytest.mark.anypython

SOME, MANY = 300, 10_000
MOST_READS = 50_000
MOST_BYTES = 1 << 16
VALUES = (b"\0", b"\xff", b"\x80", b"\x7f", b"\0" * 8, b"\xff" * 8, b"\xff" * 7 + b"\x7f")
Read = Callable[[int, int], bytes]


@dataclass
class Damaged:
    """Memory in which some bytes are others; counts what is read.

    Attributes:
        overlay: The other bytes, by their addresses.
        touched: Every address that was read.
    """

    read_whole: Read
    overlay: dict[int, int] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    reads: int = 0

    def read(self, address: int, size: int) -> bytes:
        """Exactly that many bytes."""
        self.reads += 1
        assert self.reads <= MOST_READS, "it reads on and on"
        assert size <= MOST_BYTES
        data = bytearray(self.read_whole(address, size))
        for at in range(address, address + size):
            data[at - address] = self.overlay.get(at, data[at - address])
        self.touched.update(range(address, address + size))
        return bytes(data)


@dataclass(frozen=True)
class Seed:
    """A good image, and what is looked up in it."""

    read: Read
    base: int
    names: tuple[str, ...]


@pytest.fixture
def own_image() -> Iterator[Seed]:
    """That of the interpreter which runs this test."""
    with closing(find_interpreter(os.getpid())) as interpreter:
        at = interpreter.address("PyRun_SimpleString")
        path = next(m.path for m in interpreter.maps if m.start <= at < m.end)
        heads = [m for m in read_maps(os.getpid()) if m.path == path and m.offset == 0]
        names = ("PyRun_SimpleString", "Py_AddPendingCall", "Py_Nonsense")
        yield Seed(interpreter.memory.read, heads[0].start, names)


def use(seed: Seed, damaged: Damaged) -> list[int | None] | str:
    """The addresses of all names, or the sentence that refuses the image."""
    try:
        image = Image(damaged.read, seed.base)
        image.tails(PAGE)
        found = [image.address(name) for name in seed.names]
    except CannotInject as refusal:
        return refusal.reason
    code = [s for s in image.segments if s.flags & EXECUTABLE]
    for address in found:
        assert address is None or any(
            0 <= address - image.bias - s.address < s.memory_size for s in (*code, *image.segments)
        )
    return found


def mutate(seed: Seed, runs: int, draw: random.Random) -> None:
    """Damage what a look-up reads in so many ways."""
    whole = Damaged(seed.read)
    right = use(seed, whole)
    assert isinstance(right, list)
    assert right[-1] is None
    assert None not in right[:-1]
    places = sorted(whole.touched)
    for _ in range(runs):
        damaged = Damaged(seed.read)
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            at = draw.choice(places)
            value = draw.choice((*VALUES, draw.randbytes(draw.choice((1, 4, 8)))))
            damaged.overlay.update(zip(range(at, at + len(value)), value, strict=True))
        said = use(seed, damaged)
        assert isinstance(said, list) or (said and "Error" not in said)


@pytest.mark.parametrize("kind", ["gnu", "old"])
def test_damaged_tables_end_in_an_address_or_a_sentence(kind: str) -> None:
    """Both kinds of hash table, damaged where they are read: nothing else comes of it."""
    names = ("alpha", "beta", "gamma_delta_epsilon_of_some_length", "zeta")
    seed = Seed(reader(build_image(SYMBOLS, kind=kind)), BASE, names)
    mutate(seed, SOME, random.Random(kind))


def test_a_damaged_interpreter_ends_in_an_address_or_a_sentence(own_image: Seed) -> None:
    """The same of the interpreter that runs this test, as it lies in memory."""
    mutate(own_image, SOME, random.Random(1))


@pytest.mark.nightly
def test_ten_thousand_damaged_images(own_image: Seed) -> None:
    """As many of each as nobody waits for by day."""
    draw = random.Random()
    names = ("alpha", "beta", "gamma_delta_epsilon_of_some_length", "zeta")
    for kind in ("gnu", "old"):
        seed = Seed(reader(build_image(SYMBOLS, kind=kind)), BASE, names)
        mutate(seed, MANY // 4, draw)
    mutate(own_image, MANY // 2, draw)


def test_a_symbol_outside_of_the_image_is_refused() -> None:
    """An address that is not in what was loaded, or a function among data, is never called."""
    names = {"alpha": (0x5000, 0x12, 1)}
    with pytest.raises(CannotInject, match="ELF symbol alpha lies outside"):
        Image(reader(build_image(names, kind="gnu")), BASE).address("alpha")
