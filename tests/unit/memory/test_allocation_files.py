"""Files of allocations: read as data, written for torch's page, compared, drawn; no process."""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from probing.agent.on_demand.allocation_file import (
    AllocationEvent,
    AllocationHead,
    write_allocations,
)
from probing.agent.sources.accelerator import CudaHistory
from probing.agent.sources.allocation.creating_lines import with_frames
from probing.agent.sources.allocation.device_history import DeviceHistory
from probing.agent.sources.storage.memory_look import Moment
from probing.agent.sources.storage.storages import Storage
from probing.allocations import (
    Event,
    Frame,
    Recording,
    block_rows,
    compare,
    event_rows,
    history_of,
    read_recording,
    read_snapshot,
    shared_devices,
    temporary_peaks,
    write_snapshot,
)
from probing.cli.main import run
from probing.cli.render.memory.recording_page import render_page
from probing.cli.reports.memory_recording import file_for
from probing.client.recording_client import last_recording
from probing.errors import InternalError, UsageError
from probing.messages.card import Card
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython

KIB = 1024
PAGE_OPCODES = set(
    """
    MARK STOP PROTO FRAME MEMOIZE NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
    SHORT_BINUNICODE BINUNICODE EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS TUPLE
    EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 BINGET LONG_BINGET
    """.split()  # noqa: SIM905 - one list of words
)
"""What the reader of pickles of pytorch.org/memory_viz knows."""


def stack(*lines: int) -> tuple[Frame, ...]:
    """Frames of a program, the innermost first, called by torch."""
    inside = Frame("/venv/lib/site-packages/torch/nn/functional.py", 9, "linear")
    return (inside, *(Frame("/home/me/train.py", line, f"at{line}") for line in lines))


def event(action: str, address: int, size: int, us: int, *lines: int, **more: Any) -> Event:
    """One event on the first device."""
    place = stack(*lines) if lines else ()
    return Event(action, address, size, 0, 0, us * 1000, place, **more)


RECORDING = Recording(
    how="profiler",
    devices=("cpu",),
    marks=((7, 1_000_000), (8, 2_000_000), (9, 3_000_000)),
    events=(
        event("existing", 1 << 40, 64 * KIB, 1000, module="head", category="parameters"),
        event("alloc", 4096, 16 * KIB, 1100, 10, 3, module="body", category="activations"),
        event("alloc", 1 << 20, 8 * KIB, 1200, 20, 3),
        event("free_requested", 4096, 16 * KIB, 2100, 30),
        event("free_completed", 4096, 16 * KIB, 2100, 30),
        event("alloc", 4096, 4 * KIB, 2200, 10, 3, category="gradients"),
    ),
    happened=5,
    pid=4242,
    step_s=0.5,
    plain_step_s=0.25,
)


def test_a_snapshot_comes_back_as_it_was_written() -> None:
    """What is written and read again is the same, to the last event and stack."""
    again = read_snapshot(write_snapshot(RECORDING))
    assert again.events == RECORDING.events
    assert (again.marks, again.happened, again.pid) == (RECORDING.marks, 5, 4242)
    assert history_of(again, 0) == history_of(RECORDING, 0)


def test_a_snapshot_is_what_the_public_page_can_read() -> None:
    """It has protocol 4, the page's opcodes alone, and the keys that its script asks for."""
    data = write_snapshot(RECORDING)
    used = {opcode.name for opcode, _, _ in pickletools.genops(data)}
    assert used <= PAGE_OPCODES
    assert data[:2] == b"\x80\x04"
    plain = pickle.loads(data)
    (trace,) = plain["device_traces"]
    assert [entry["action"] for entry in trace] == [
        "alloc",
        "alloc",
        "free_requested",
        "free_completed",
        "alloc",
    ]
    assert "unknown" in {entry["category"] for entry in trace}, "the page fails without that word"
    for segment in plain["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    live = [b for s in plain["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
    assert sorted(block["size"] for block in live) == [4 * KIB, 8 * KIB, 64 * KIB]


class Hostile:
    """Makes a file as it is unpickled by somebody careless."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.path), "w"))


def test_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    """Code hidden anywhere in a snapshot is not run; the sentence names what it would have been."""
    trap = tmp_path / "trap"
    plain = pickle.loads(write_snapshot(RECORDING))
    plain["segments"][0]["blocks"][0]["frames"] = [Hostile(trap)]
    for protocol in (0, 2, 4, 5):
        with pytest.raises(UsageError, match=r"not opened: it would run _?io\.open") as caught:
            read_snapshot(pickle.dumps(plain, protocol=protocol))
        assert "\n" not in caught.value.message
    assert not trap.exists()


class Fetched(pickle.Pickler):
    """Writes everything as lying elsewhere."""

    def persistent_id(self, obj: Any) -> Any:
        """What stands for each text."""
        return "elsewhere" if isinstance(obj, str) else None


def _elsewhere() -> bytes:
    file = io.BytesIO()
    Fetched(file, 4).dump({"device_traces": []})
    return file.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a pickle at all",
        write_snapshot(RECORDING)[:-40],
        pickle.dumps({"segments": []}),
        pickle.dumps([1, 2]),
        pickle.dumps({"segments": [], "device_traces": [[{"action": 7}]]}),
        pickle.dumps({"segments": [{"blocks": 3}], "device_traces": []}),
        pickle.dumps({"segments": [], "device_traces": [], "probing": {"devices": [{}]}}),
        b"\x80\x04" + b"(" * 100_000,
        _elsewhere(),
    ],
    ids=range(10),
)
def test_what_is_no_snapshot_is_one_sentence(data: bytes) -> None:
    """Whatever the bytes, there is a recording or an error of ours, and never another."""
    with pytest.raises(UsageError) as caught:
        read_snapshot(data)
    assert caught.value.message.count(".") <= 2
    assert caught.value.help


def test_the_peak_and_the_places_are_counted_right() -> None:
    """Levels, peak and places of a recording are those that one finds by hand."""
    history = history_of(RECORDING, 0)
    assert (history.first_bytes, history.last_bytes) == (64 * KIB, 76 * KIB)
    assert (history.peak_bytes, history.peak_at, history.events) == (88 * KIB, 2, 4)
    places = {site.frame: (site.count, site.bytes, site.live_bytes, site.peak_bytes) for site in
              history.sites}  # fmt: skip
    assert places == {
        "(older than the recording)": (1, 64 * KIB, 64 * KIB, 64 * KIB),
        "/home/me/train.py:10 at10": (2, 20 * KIB, 4 * KIB, 16 * KIB),
        "/home/me/train.py:20 at20": (1, 8 * KIB, 8 * KIB, 8 * KIB),
    }


def test_rows_have_steps_ages_and_places() -> None:
    """What is not known is NULL: the stack and step of older memory, the stream of the CPU."""
    events, blocks = event_rows(RECORDING), block_rows(RECORDING)
    first = events.dicts()[0]
    assert (first["step"], first["frame"]) == (7, "/home/me/train.py:10 at10")
    assert (first["stream"], first["module"]) == (None, "body")
    assert str(first["frames"]).splitlines()[0].endswith("functional.py:9 linear")
    rows = blocks.dicts()
    assert [(row["bytes"], row["age_steps"]) for row in rows] == [
        (64 * KIB, None),
        (8 * KIB, 2),
        (4 * KIB, 1),
    ]
    assert rows[0]["time_ns"] is None
    assert event_rows(None).note == block_rows(None).note is not None


def test_only_the_newest_events_are_kept_and_that_is_said(tmp_path: Path) -> None:
    """A file holds so many events as were asked for, all that was there before, and the count."""
    events = [AllocationEvent("existing", 1, 10, 0, 0, 0, -1)]
    events += [AllocationEvent("alloc", 100 + n, 10, 0, 0, n * 1000, -1) for n in range(1000)]
    head = AllocationHead(how="profiler", devices=("cpu",), marks=(), entries=300)
    path = tmp_path / "allocations.gz"
    write_allocations(path, head, [], events)
    found = last_recording(path)
    assert found is not None
    assert [e.address for e in found.events] == [1, *range(800, 1100)]
    assert event_rows(found).note == found.cut == "the newest 300 of 1,000 events are kept"
    assert [entry.name for entry in tmp_path.iterdir()] == ["allocations.gz"]


def test_two_that_write_at_once_each_leave_a_whole_file(tmp_path: Path) -> None:
    """Two people may ask for what an allocator has recorded."""
    events = [AllocationEvent("alloc", n, 10, 0, 0, n, -1) for n in range(4000)]
    head = AllocationHead(how="allocator", devices=("cuda:0",), marks=(), entries=4000)
    path, begun = tmp_path / "allocations.gz", threading.Barrier(2)

    def write(_: int) -> None:
        begun.wait(DEADLINE_S)
        write_allocations(path, head, [], events)
        read_recording(path.read_bytes())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(2)))
    assert [entry.name for entry in tmp_path.iterdir()] == ["allocations.gz"]


def test_a_recording_that_breaks_off_is_one_sentence(tmp_path: Path) -> None:
    """A file that was not written to its end is not read as if it were."""
    path = tmp_path / "allocations.gz"
    head = AllocationHead(how="profiler", devices=("cpu",), marks=(), entries=1)
    write_allocations(
        path, head, [(-1, "a.py", 1, "f")], [AllocationEvent("alloc", 0, 1, 0, 0, 0, 0)]
    )
    data = path.read_bytes()
    assert read_recording(data).kept == 1
    for length in range(0, len(data) - 1, 7):
        with pytest.raises(InternalError, match="cannot be read"):
            read_recording(data[:length])


class Keeper(CudaHistory):
    """An allocator's history as torch 2.13 gives it, recorded on a device."""

    def __init__(self, *, has_history: bool = False) -> None:
        self.started: list[int] = []
        self.is_on = has_history

    def is_in_use(self) -> bool:
        """See `CudaHistory`."""
        return True

    def has_history(self) -> bool:
        """See `CudaHistory`."""
        return self.is_on

    def start_history(self, entries: int) -> None:
        """See `CudaHistory`."""
        self.started.append(entries)
        self.is_on = True

    def stop_history(self) -> None:
        """See `CudaHistory`."""
        self.is_on = False

    def history(self) -> dict[str, Any]:
        """See `CudaHistory`."""
        frames = [{"filename": f.file, "line": f.line, "name": f.name} for f in stack(10, 3)]
        common = {"stream": 0, "frames": frames, "pool_id": (0, 0), "user_metadata": ""}
        block = {"address": 512, "size": 512, "requested_size": 400, "state": "active_allocated"}
        free = {"address": 1024, "size": 512, "requested_size": 0, "state": "inactive"}
        segment = {
            "device": 0, "address": 512, "total_size": 1024, "allocated_size": 512, "stream": 0,
            "active_size": 512, "requested_size": 400, "segment_type": "small",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
            "blocks": [{**block, "frames": frames}, {**free, "frames": []}],
        }  # fmt: skip
        traces = [
            {"action": "segment_alloc", "addr": 512, "size": 1024, "time_us": 10, **common},
            {"action": "alloc", "addr": 512, "size": 400, "time_us": 11, **common},
            {"action": "oom", "device_free": 99, "size": 1 << 30, "time_us": 12, **common},
        ]
        return {
            "device_traces": [traces, []],
            "segments": [segment],
            "allocator_settings": {"expandable_segments": False},
        }


def test_the_history_of_an_accelerator_becomes_the_same_tables(tmp_path: Path) -> None:
    """Events, blocks and segments of torch's own snapshot get through, and come out as torch's."""
    keeper = Keeper()
    history = DeviceHistory(keeper, lambda: 5)
    history.start(1000)
    assert keeper.started == [1000]
    history.save(tmp_path / "allocations.gz")
    history.stop()
    assert not keeper.is_on
    found = last_recording(tmp_path / "allocations.gz")
    assert found is not None
    assert [event.action for event in found.events] == ["segment_alloc", "alloc", "oom"]
    (block,) = block_rows(found).rows
    assert block[:3] == (512, 400, "cuda:0")
    assert "/home/me/train.py:10 at10" in block
    (segment,) = pickle.loads(write_snapshot(found))["segments"]
    wanted = keeper.history()["segments"][0]
    assert {key: segment[key] for key in ("total_size", "active_size", "segment_type")} == {
        key: wanted[key] for key in ("total_size", "active_size", "segment_type")
    }
    assert [b["state"] for b in segment["blocks"]] == ["active_allocated", "inactive"]
    written = pickle.loads(write_snapshot(found))["device_traces"][0]
    assert [entry.get("device_free") for entry in written] == [None, None, 99]
    again = read_snapshot(write_snapshot(found)).events
    assert [event.device_free for event in again] == [None, None, 99]


def test_every_device_that_both_used_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second accelerator has its own difference, and one that nobody used has none."""
    events = tuple(
        Event("alloc", 512 * (number + 1), size, number, 0, 10 + number, ())
        for number, size in enumerate((1000, 3 * KIB))
    )
    one = replace(RECORDING, how="allocator", devices=("cuda:0", "cuda:1", "cuda:2"),
                  events=events, segments=())  # fmt: skip
    more = tuple(event._replace(bytes=event.bytes * 2) for event in events)
    other = replace(one, events=more)
    devices = shared_devices(one, other)
    assert devices == (("cuda:0", 0, 0), ("cuda:1", 1, 1))
    found = [compare(one, other, (at, there)).peaks for _, at, there in devices]
    assert found == [(1000, 2000), (3 * KIB, 6 * KIB)]
    for name, recording in (("a", one), ("b", other)):
        (tmp_path / name).write_bytes(write_snapshot(recording))
    assert run(["file", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    said = capsys.readouterr().out
    assert said.index("== cuda:0 ==") < said.index("== cuda:1 ==")
    assert "cuda:2" not in said


def test_a_history_tells_which_line_made_what_was_there_at_a_moment() -> None:
    """The newest allocation before the moment counts, not one that came to the place later."""
    history = Keeper().history()
    later = {"filename": "/home/me/train.py", "line": 99, "name": "later"}
    trace = history["device_traces"][0]
    trace.append({"action": "alloc", "addr": 512, "size": 400, "time_us": 20, "frames": [later]})
    one = Storage(512, "cuda:0", 400, "float32", (100,), "other", None, None, False, 1, None, 7)
    host = one._replace(device="cpu", frame="train.py:1 host")
    moments = [Moment("now", 5, (one, host), 0.0, at * 1000) for at in (5, 15, 25)]
    found = [[s.frame for s in each.storages] for each in with_frames(moments, history)]
    assert found == [
        [None, "train.py:1 host"],
        ["/home/me/train.py:10 at10", "train.py:1 host"],
        ["/home/me/train.py:99 later", "train.py:1 host"],
    ]


def test_a_history_of_the_program_is_left_alone() -> None:
    """Where the program keeps a history itself, it is neither changed nor ended."""
    keeper = Keeper(has_history=True)
    history = DeviceHistory(keeper, lambda: None)
    history.start(1000)
    history.stop()
    assert keeper.started == []
    assert keeper.is_on


def test_the_page_has_the_data_and_asks_no_other_machine() -> None:
    """The page names places and sizes, no address of any machine, and no text ends its script."""
    evil = Frame("</script><script>alert(1)</script>\x1b[2J", 1, "f")
    hostile = RECORDING.events[2]._replace(stack=(evil,), address=77)
    recording = Recording(
        how="file", devices=("cpu",), events=(*RECORDING.events, hostile), happened=6
    )
    page = render_page(recording, title="a <b> & c.pickle")
    assert "<title>a &lt;b&gt; &amp; c.pickle</title>" in page
    assert not re.search(r"https?:|//[a-z]+\.|src=|@import|url\(", page)
    assert page.count("<script>") == page.count("</script>") == 1
    assert "\x1b" not in page
    data = json.loads(re.search(r"const data = (.*);\n", page)[1])  # type: ignore[index]
    (device,) = data["devices"]
    assert (device["peak"], device["bytes"][1]) == (88 * KIB, 16 * KIB)
    assert "/home/me/train.py:20 at20" in device["sites"]
    assert "/home/me/train.py:3 at3" in data["frames"]


def test_two_recordings_are_compared_by_category_and_place() -> None:
    """The largest difference comes first; a line that has moved is no difference."""
    moved = [e._replace(stack=tuple(f._replace(line=f.line + 5) for f in e.stack))
             for e in RECORDING.events]  # fmt: skip
    more = moved[1]._replace(address=99, bytes=100 * KIB)
    other = Recording(how="file", devices=("cpu",), events=(*moved, more), happened=6)
    difference = compare(RECORDING, other)
    assert difference.peaks == (88 * KIB, 176 * KIB)
    assert difference.sites[0].name == "/home/me/train.py at10"
    assert difference.sites[0].lasts == (4 * KIB, 104 * KIB)
    assert difference.categories[0].name == "activations"
    same = compare(RECORDING, RECORDING)
    assert all(change.peaks[0] == change.peaks[1] for change in same.sites)


def test_no_two_processes_write_the_same_file(tmp_path: Path) -> None:
    """Machines, ranks, processes and steps have their own, unless one process is given a name."""
    card = Card(
        pid=10, start_time=1, boot_id="", pid_namespace=0, uid=0, host="h", command=(),
        executable="", python="", version="", started_ns=0, rank=0, local_rank=0, world_size=2,
    )  # fmt: skip
    cards = [card, replace(card, rank=1), replace(card, pid=11, rank=None), replace(card, host="g")]
    names = [file_for("m.pickle", RECORDING, card, is_single=False) for card in cards]
    assert names == [
        "m-h-rank0-pid10-step9.pickle",
        "m-h-rank1-pid10-step9.pickle",
        "m-h-pid11-step9.pickle",
        "m-g-rank0-pid10-step9.pickle",
    ]
    inside = file_for(str(tmp_path), RECORDING, cards[0], is_single=True)
    assert inside == str(tmp_path / "memory-h-rank0-pid10-step9.pickle")
    assert file_for("m.pickle", RECORDING, cards[0], is_single=True) == "m.pickle"
    with pytest.raises(UsageError, match="no folder"):
        file_for("nowhere/", RECORDING, cards[0], is_single=True)


def test_the_most_that_was_there_for_a_moment_is_told_by_module() -> None:
    """Of what nothing held as a step ended: two at a time in one module, one after another."""
    events = (
        event("alloc", 1, 4 * KIB, 1100, module="a"),
        event("alloc", 2, 2 * KIB, 1200, module="a"),
        event("free_completed", 1, 4 * KIB, 1300),
        event("alloc", 3, 3 * KIB, 1400, module="b"),
        event("free_completed", 2, 2 * KIB, 1500),
        event("free_completed", 3, 3 * KIB, 1600),
        event("alloc", 4, 9 * KIB, 1700, module="b", category="gradients"),
    )
    recording = replace(RECORDING, events=events, happened=len(events))
    peaks = [(p.module, p.peak_bytes, p.count) for p in temporary_peaks(history_of(recording, 0))]
    assert peaks == [(None, 6 * KIB, 3), ("a", 6 * KIB, 2), ("b", 3 * KIB, 1)]
