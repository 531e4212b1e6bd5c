"""What is sent to OpenTelemetry: what variables ask for, which steps, and in whose name."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.semconv.attributes.exception_attributes import EXCEPTION_TYPE
from opentelemetry.trace import StatusCode

from probing.cluster.node.otel.resources import Resources, TraceIds
from probing.cluster.node.otel.spans import Steps
from probing.cluster.node.otel.wanted import Signal, Wanted, wanted_in
from probing.cluster.node.roster import Roster
from probing.errors import UsageError
from probing.linux import process
from probing.messages.about.job import NodeMember
from probing.messages.codec import encode, with_checksum
from probing.postmortem.crashes import EXCEPTION, THREAD_EXCEPTION, CrashRecord
from probing.rundir.folders import RunDirectory
from probing.tables import TABLES_BY_NAME
from tests.harness.cards import card_of
from tests.harness.ring_writer import RingWriter

pytestmark = pytest.mark.anypython

MS = 10**6
METRICS = Signal(name="metrics", url="http://localhost:4318/v1/metrics", every_s=60)
TRACES = Signal(name="traces", url="http://localhost:4318/v1/traces", every_s=5)


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({}, Wanted(metrics=METRICS, traces=TRACES, batch=512)),
        ({"OTEL_SDK_DISABLED": "True"}, Wanted(metrics=None, traces=None, batch=512)),
        ({"OTEL_METRICS_EXPORTER": "none"}, Wanted(metrics=None, traces=TRACES, batch=512)),
        ({"OTEL_TRACES_EXPORTER": "none"}, Wanted(metrics=METRICS, traces=None, batch=512)),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4318/",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://tempo/otlp",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
                "OTEL_METRIC_EXPORT_INTERVAL": "1500",
                "OTEL_BSP_SCHEDULE_DELAY": "250",
                "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "7",
            },
            Wanted(
                metrics=Signal(
                    name="metrics", url="https://collector:4318/v1/metrics", every_s=1.5
                ),
                traces=Signal(name="traces", url="http://tempo/otlp", every_s=0.25),
                batch=7,
            ),
        ),
    ],
)
def test_the_standard_variables_count(env: dict[str, str], wanted: Wanted) -> None:
    """One kind's own variable goes before the one of all; what is unset has the usual default."""
    assert wanted_in(env) == wanted


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL is grpc"),
        ("OTEL_TRACES_EXPORTER", "console", "has to be otlp or none"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317", "begins with http"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1m", "is 1m: it has to be a number of at least 100"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0", "has to be a number of at least 100"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "nan", "has to be a number of at least 1"),
    ],
)
def test_what_cannot_be_done_is_said(name: str, value: str, sentence: str) -> None:
    """In a sentence that names the variable."""
    with pytest.raises(UsageError, match=sentence):
        wanted_in({name: value})


class Rank:
    """Rank 0 of a job: this process, whose steps tests write, or one that has ended."""

    def __init__(
        self, home: Path, *, most: int = 8, capacity: int = 64, is_alive: bool = True
    ) -> None:
        self.directory = RunDirectory(home)
        self.steps = self.sender(most)
        pid = os.getpid() if is_alive else 2**22 + 1
        start = process.start_time(pid) if is_alive else 1
        assert start is not None
        self.folder = self.directory.create_folder(pid, start)
        self.folder.write_card(card_of(pid, start, rank=0, job="gpt"))
        self._ring = RingWriter(TABLES_BY_NAME["steps"], capacity=capacity)
        self._path = self.folder.ring("steps")
        self._start_ns = time.perf_counter_ns()

    def begin_anew(self) -> None:
        """Make an empty ring, as the next attach does."""
        self._ring = RingWriter(TABLES_BY_NAME["steps"], capacity=self._ring.capacity)

    def sender(self, most: int = 8) -> Steps:
        """What sends them."""
        roster = Roster(self.directory, lambda _: None)
        return Steps(roster, Resources(roster), most)

    def open(self, number: int) -> None:
        """Begin a step that does not end."""
        self._ring.open(step=number, start_ns=self._start_ns + number * 10 * MS)
        self._ring.save(self._path)

    def raised(self, number: int, *, kind: str = EXCEPTION) -> None:
        """Leave the record of an exception, 4 ms into a step."""
        record = CrashRecord(
            when_ns=1, kind=kind, type="torch.OutOfMemoryError", message="a secret", threads=(),
            step=number, monotonic_ns=self._start_ns + (number * 10 + 4) * MS,
        )  # fmt: skip
        self.folder.exception.write_bytes(with_checksum(encode(record)))

    def write(self, *numbers: int, **values: float) -> None:
        """Make steps, 10 ms apart."""
        for number in numbers:
            begun = self._start_ns + number * 10 * MS
            given = {"step": number, "start_ns": begun, "duration_ns": 9 * MS, "loss_finite": 1}
            self._ring.write(**{**given, **values})
        self._ring.save(self._path)


def numbers(spans: tuple[ReadableSpan, ...]) -> list[tuple[object, object]]:
    """Rank and step of each."""
    found = [span.attributes or {} for span in spans]
    return [(values["probing.rank"], values["probing.step"]) for values in found]


def test_a_step_is_sent_once_it_was_taken(tmp_path: Path) -> None:
    """What was not taken comes again, with the same ids; what may change is waited for."""
    rank = Rank(tmp_path / "home")
    rank.write(*range(1, 21))
    first, again = rank.steps.next(), rank.steps.next()
    assert numbers(first.spans) == numbers(again.spans) == [(0, n) for n in range(1, 9)]
    assert [s.context for s in first.spans] == [s.context for s in again.spans]
    rank.steps.sent(again)
    batch = rank.steps.next()
    assert numbers(batch.spans) == [(0, n) for n in range(9, 13)]  # 8 more may still change
    rank.steps.sent(batch)
    assert rank.steps.next().reached == {}
    rank.steps.settle()
    assert numbers(rank.steps.next().spans) == [(0, n) for n in range(13, 21)]


def test_what_was_overwritten_meanwhile_is_left_out(tmp_path: Path) -> None:
    """A receiver that was away for longer than the ring holds gets what is left, in order."""
    rank = Rank(tmp_path / "home", most=64, capacity=16)
    rank.write(*range(1, 41))
    assert numbers(rank.steps.next().spans) == [(0, n) for n in range(25, 33)]


def test_a_span_says_what_the_row_says(tmp_path: Path) -> None:
    """Times by the clock, phases that there were, and an error where the loss is not finite."""
    rank = Rank(tmp_path / "home", most=64)
    rank.write(1, loss=2.5, forward_s=0.004, backward_s=0.005, loss_finite=1)
    rank.write(2, loss_finite=0)
    rank.steps.settle()
    first, second = rank.steps.next().spans
    assert (first.end_time or 0) - (first.start_time or 0) == 9 * MS
    assert (second.start_time or 0) - (first.start_time or 0) == 10 * MS
    values = first.attributes or {}
    assert values["probing.phase.forward.duration"] == 0.004
    assert values["probing.phase.backward.duration"] == 0.005
    assert values["probing.loss"] == 2.5
    codes = [span.status.status_code for span in (first, second)]
    assert codes == [StatusCode.UNSET, StatusCode.ERROR]
    assert first.context is not None
    assert second.context is not None
    assert first.context.trace_id == second.context.trace_id
    assert first.context.span_id != second.context.span_id


def test_a_step_that_an_exception_ends_is_an_error(tmp_path: Path) -> None:
    """By its class, as others name it; what it says stays, and it ends with the exception."""
    rank = Rank(tmp_path / "home", is_alive=False)
    rank.write(1)
    rank.open(2)
    rank.raised(2)
    first, second = rank.steps.next().spans
    assert numbers((first, second)) == [(0, 1), (0, 2)]
    assert (first.status.status_code, first.events) == (StatusCode.UNSET, ())
    assert second.status.status_code is StatusCode.ERROR
    assert second.status.description == "torch.OutOfMemoryError ended the step"
    assert (second.attributes or {})[ERROR_TYPE] == "torch.OutOfMemoryError"
    (event,) = second.events
    assert event.name == "exception"
    assert dict(event.attributes or {}) == {EXCEPTION_TYPE: "torch.OutOfMemoryError"}
    assert event.timestamp == second.end_time == (second.start_time or 0) + 4 * MS
    assert "secret" not in second.to_json()


@pytest.mark.parametrize(("number", "kind"), [(1, EXCEPTION), (2, THREAD_EXCEPTION)])
def test_a_step_that_is_open_for_another_reason_is_none(
    number: int, kind: str, tmp_path: Path
) -> None:
    """An exception of another step, or of another thread, has not ended it."""
    rank = Rank(tmp_path / "home", is_alive=False)
    rank.write(1)
    rank.open(2)
    rank.raised(number, kind=kind)
    assert numbers(rank.steps.next().spans) == [(0, 1)]


def test_the_sampler_takes_steps_and_not_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the steps, the same whoever asks; the others are passed over."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
    rank = Rank(tmp_path / "home", most=400, capacity=512)
    rank.write(*range(1, 401))
    rank.steps.settle()
    taken = rank.steps.next()
    assert 60 < len(taken.spans) < 140
    assert [one.seq for one in taken.reached.values()] == [400]
    assert numbers(rank.steps.next().spans) == numbers(taken.spans)


def test_steps_before_the_server_are_not_sent(tmp_path: Path) -> None:
    """Another one has sent them, or nobody wanted them."""
    rank = Rank(tmp_path / "home")
    rank.write(1, 2, 3)
    later = rank.sender()
    later.settle()
    assert later.next().spans == ()
    rank.write(4)
    assert numbers(later.next().spans) == [(0, 4)]


@pytest.mark.parametrize("number", [5, 25])
def test_a_ring_made_anew_is_read_from_its_first_row(number: int, tmp_path: Path) -> None:
    """After a detach and an attach all steps are sent, with ids of their own."""
    rank = Rank(tmp_path / "home", most=64)
    rank.write(*range(1, 21))
    rank.steps.settle()
    before = rank.steps.next()
    rank.steps.sent(before)
    rank.begin_anew()
    rank.write(*range(101, 101 + number))
    after = rank.steps.next()
    assert numbers(after.spans) == [(0, 101 + n) for n in range(number)]
    ids = {span.context.span_id for span in (*before.spans, *after.spans) if span.context}
    assert len(ids) == 20 + number


def member(rank: int | None, started_s: int, *, job: str | None = "gpt") -> NodeMember:
    """One rank."""
    return NodeMember(
        key=f"{rank}-{started_s}", rank=rank, local_rank=rank, world_size=2, job=job, attempt=0,
        pid=1, host="node1", started_ns=started_s * 10**9, is_alive=True,
    )  # fmt: skip


def test_a_run_has_one_trace() -> None:
    """Ranks of one start share it; another start of the name does not, nor who has no rank."""
    first = [member(0, 100), member(1, 103)]
    second = [member(0, 200), member(1, 201)]
    late = [member(0, 5000)]
    alone = [member(None, 100, job=None), member(None, 101, job=None)]
    ids = TraceIds().look([*alone, *late, *second, *first])
    of = [{ids[one.key] for one in group} for group in (first, second, late)]
    assert [len(group) for group in of] == [1, 1, 1]
    assert len(set.union(*of)) == 3
    assert len(set(ids.values())) == 5
    traces = TraceIds()
    before = traces.look(first)
    assert traces.look(first[1:])["1-103"] == before["1-103"]  # rank 0's record is gone


def test_who_learns_its_rank_is_told_by_it(tmp_path: Path) -> None:
    """Spawned ranks join their job in `init_process_group`: then they share trace and name."""
    joined = [member(0, 100), member(1, 101)]
    early = [
        dataclasses.replace(one, rank=None, local_rank=None, world_size=None, job=None)
        for one in joined
    ]
    resources = Resources(Roster(RunDirectory(tmp_path / "home"), lambda _: None))
    traces = TraceIds()
    assert len(set(traces.look(early).values())) == 2
    assert "probing.rank" not in resources.of(early[1]).attributes
    assert len(set(traces.look(joined).values())) == 1
    told = resources.of(joined[1]).attributes
    assert (told["probing.rank"], told["probing.job"]) == (1, "gpt")
    assert resources.of(joined[1]) is resources.of(joined[1])


@pytest.mark.parametrize("sooner", [0, 1])
def test_ranks_that_learn_it_one_by_one_have_one_trace(sooner: int) -> None:
    """Whoever comes later joins the trace that the others have, also the one that began first."""
    joined = [member(0, 100), member(1, 101)]
    early = [dataclasses.replace(one, rank=None, job=None) for one in joined]
    traces = TraceIds()
    traces.look(early)
    between = traces.look([joined[sooner], early[1 - sooner]])
    assert len(set(between.values())) == 2
    assert set(traces.look(joined).values()) == {between[joined[sooner].key]}
