"""When a node server says that a process stalls."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import pytest

from probing.client.providers import providers_for
from probing.cluster.node.roster import Roster
from probing.cluster.node.stall_record import StallRecord
from probing.cluster.node.stalls import FIRST_S, StallWatch, stall_limit_s
from probing.linux import process
from probing.messages.card import Card
from probing.ring.format import DONE
from probing.ring.writer import RingWriter
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.sql.engine import Engine
from probing.tables import STEPS
from tests.harness.cards import card_of
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython


class Steps:
    """The ring of steps of a process, as its agent would write it."""

    def __init__(self, folder: ProcessFolder) -> None:
        self._ring = RingWriter(folder.ring("steps"), STEPS, 64)
        self._names = [field.column.name for field in self._ring.layout.opening]
        self._number = 0

    def one(self, duration_ns: int, start_ns: int = 0) -> None:
        """One more step, of that duration."""
        self._number += 1
        values = {"step": self._number, "start_ns": start_ns}
        word = self._ring.open_row(*(values.get(name, 0) for name in self._names))
        self._ring.close_named(word, DONE, {"duration_ns": duration_ns})


def stalls(folder: ProcessFolder) -> list[dict[str, object]]:
    """What the table holds."""
    sql = "SELECT step, state, limit_s, usual_s, duration IS NULL AS lasts FROM probing.stalls"
    engine = Engine(providers_for(folder, limit_s=DEADLINE_S))
    return engine.run(sql, timeout_s=DEADLINE_S).to_pylist()


def test_the_limit_follows_the_steps() -> None:
    """Ten seconds, five median steps where that is longer, a minute where no step is known."""
    assert [stall_limit_s(usual) for usual in (0.1, 2.0, 7.0, None)] == [10.0, 10.0, 35.0, FIRST_S]


def test_a_stall_is_a_row_that_ends_with_the_next_step(tmp_path: Path) -> None:
    """Steps of 4 s stall after 20 s without one; the row is open until there is another step."""
    now = 0.0
    directory = RunDirectory(tmp_path / "home")
    folder = directory.create_folder(4242, 1)
    steps = Steps(folder)
    watch = StallWatch(clock=lambda: now)
    for _ in range(4):
        steps.one(4_000_000_000)
        watch.look([folder])
    now = 19.0
    watch.look([folder])
    assert watch.stalled_s("4242-1") is None
    assert stalls(folder) == []
    now = 21.0
    watch.look([folder])
    assert watch.stalled_s("4242-1") == 21.0
    row = {"step": 4, "state": "waiting", "limit_s": 20.0, "usual_s": 4.0}
    assert stalls(folder) == [{**row, "lasts": True}]
    steps.one(4_000_000_000)
    watch.look([folder])
    assert watch.stalled_s("4242-1") is None
    assert stalls(folder) == [{**row, "lasts": False}]
    watch.close()


def test_what_is_not_recorded_does_not_stall(tmp_path: Path) -> None:
    """Its record stands still whatever it does; from when it is recorded again, it may stall."""
    at_s = [0.0]
    folder = RunDirectory(tmp_path / "home").create_folder(4242, 1)
    Steps(folder).one(1_000_000_000)
    watch = StallWatch(clock=lambda: at_s[0])

    def look(now: float, *, is_recording: bool) -> float | None:
        at_s[0] = now
        folder.write_card(card_of(4242, 1, is_recording=is_recording))
        watch.look([folder])
        return watch.stalled_s("4242-1")

    looks = [(0.0, True), (30.0, False), (90.0, False), (149.0, True), (151.0, True)]
    stalled = [look(now, is_recording=is_recording) for now, is_recording in looks]
    assert stalled == [None, None, None, None, 61.0]
    watch.close()


def test_stalls_are_on_record_after_another_attach(tmp_path: Path) -> None:
    """A detach takes the folder away, with the file that the node server has open."""
    now = 0.0
    directory = RunDirectory(tmp_path / "home")
    watch = StallWatch(clock=lambda: now)
    for _ in range(2):
        folder = directory.create_folder(4242, 1)
        Steps(folder).one(1_000_000_000)
        watch.look([folder])
        now += 1.0
        watch.look([folder])
        now += FIRST_S + 1
        watch.look([folder])
        assert [row["lasts"] for row in stalls(folder)] == [True]
        shutil.rmtree(folder.path)
        watch.look([directory.create_folder(4242, 1)])
    watch.close()


@pytest.mark.parametrize("number", [errno.EACCES, errno.ESTALE])
def test_a_folder_that_cannot_be_reached_has_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Some Pythons raise what a file system says of a path, where others say no."""

    def unreachable(_path: Path) -> bool:
        raise OSError(number, os.strerror(number))

    record = StallRecord(RunDirectory(tmp_path / "home").create_folder(4242, 1))
    monkeypatch.setattr(Path, "exists", unreachable)
    assert record.begin({}) is None


def test_who_asks_for_the_members_learns_of_the_stall(tmp_path: Path) -> None:
    """A node server's list of processes says for how long each of them has made no step."""
    now = 0.0
    directory = RunDirectory(tmp_path / "home")
    pid = os.getpid()
    folder = directory.create_folder(pid, process.start_time(pid) or 0)
    card = Card(
        pid=pid, start_time=folder.start_time, boot_id=process.boot_id(), host="h",
        pid_namespace=process.pid_namespace(), uid=os.getuid(), command=(), executable="",
        python="", version="", started_ns=0, rank=0, local_rank=0, world_size=1,
    )  # fmt: skip
    folder.write_card(card)
    steps, watch = Steps(folder), StallWatch(clock=lambda: now)
    roster = Roster(directory, watch.stalled_s)
    steps.one(1_000_000)
    watch.look([folder])
    (member,) = roster.members(with_states=False).members
    assert (member.pid, member.stalled_s) == (pid, None)
    now = FIRST_S + 1
    watch.look([folder])
    (member,) = roster.members(with_states=False).members
    assert member.stalled_s == FIRST_S + 1
    watch.close()


def test_a_process_that_records_nothing_does_not_stall(tmp_path: Path) -> None:
    """One that has made no step, no collective and no call of a module is not watched for them."""
    now = 0.0
    folder = RunDirectory(tmp_path / "home").create_folder(4242, 1)
    watch = StallWatch(clock=lambda: now)
    watch.look([folder])
    now = 1000.0
    watch.look([folder])
    assert watch.stalled_s("4242-1") is None
    watch.look([])
    watch.close()


@pytest.mark.parametrize("goes_on", [False, True], ids=["lasts", "ended meanwhile"])
def test_a_node_server_takes_over_what_the_one_before_it_wrote(
    tmp_path: Path, *, goes_on: bool
) -> None:
    """Stalls that are over stay, one that lasts goes on, and one that has ended is closed then."""
    now = 0.0
    folder = RunDirectory(tmp_path / "home").create_folder(4242, 1)
    steps, first = Steps(folder), StallWatch(clock=lambda: now)
    for _ in range(2):
        steps.one(1_000_000)
        first.look([folder])
        now += FIRST_S + 1
        first.look([folder])
    steps.one(1_000_000)
    first.look([folder])
    stalled_at = time.perf_counter_ns()
    now += 11
    first.look([folder])
    before = stalls(folder)
    assert [row["lasts"] for row in before] == [False, False, True]
    first.close()
    if goes_on:
        steps.one(1_000_000, start_ns=stalled_at + 20_000_000_000)
    second = StallWatch(clock=lambda: now)
    second.look([folder])
    assert (second.stalled_s("4242-1") is None) == goes_on
    assert stalls(folder) == [*before[:2], {**before[2], "lasts": not goes_on}]
    if goes_on:
        sql = "SELECT max(start_ns + duration_ns) = (SELECT max(start_ns) FROM python.steps) AS it"
        found = Engine(providers_for(folder, limit_s=DEADLINE_S)).run(
            f"{sql} FROM probing.stalls", timeout_s=DEADLINE_S
        )
        assert found.to_pylist() == [{"it": True}]
        return
    steps.one(1_000_000)
    second.look([folder])
    assert second.stalled_s("4242-1") is None
    assert [row["lasts"] for row in stalls(folder)] == [False, False, False]
    second.close()


def test_a_record_that_cannot_be_looked_at_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed is said; those who have gone are forgotten all the same."""
    directory = RunDirectory(tmp_path)
    looked: list[int] = []
    bad, good, gone = (directory.create_folder(4242, number) for number in (1, 2, 3))
    watch = StallWatch()
    watch.look([gone])

    def sign_of(folder: ProcessFolder) -> tuple[()]:
        looked.append(folder.start_time)
        if folder.start_time == bad.start_time:
            raise ValueError("odd")
        return ()

    monkeypatch.setattr("probing.cluster.node.stalls.sign_of", sign_of)
    assert watch.look([bad, good]) == ["ValueError: odd"]
    assert looked == [1, 2]
    assert watch._known.keys() == {good.path.name}
