"""What a scrape has of processes: by their records, and where several have the same labels."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from probing.client.script_figures import MOST_NAMES
from probing.cluster.node.figures import FIGURES, Figures, Found
from probing.cluster.node.metrics import Metrics
from probing.cluster.node.roster import Roster
from probing.messages.about.job import MembersAnswer, NodeMember
from probing.postmortem.endings import Reason
from probing.ring.format import NULL_FLOAT
from probing.ring.peek import RingPeek
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.tables import METRICS, STEP_PHASES, STEPS
from tests.harness.cards import card_of
from tests.harness.name_lists import encode_names
from tests.harness.ring_writer import RingWriter

pytestmark = pytest.mark.anypython

GONE = 2**22 + 1
"""Above all pids that there can be."""


class Told:
    """The figures of processes that are made by hand."""

    def __init__(self, found: list[Found]) -> None:
        self._found = found

    def now(self) -> list[Found]:
        """See `Figures`."""
        return self._found


def found(
    started_ns: int,
    rank: int | None,
    *,
    is_alive: bool,
    job: str = "train_gpt",
    ended: Reason | None = None,
) -> Found:
    """A process 7, as containers have it."""
    member = NodeMember(
        key=f"7-{started_ns}", rank=rank, local_rank=0, world_size=1, job=None, attempt=0, pid=7,
        host="node", started_ns=started_ns, is_alive=is_alive, state="training", step=1,
        stalled_s=None,
    )  # fmt: skip
    return Found(
        member=member,
        job=job,
        ended=ended,
        values={"step": float(started_ns)} if is_alive else {},
        phases={"forward": 1.0} if is_alive else {},
    )


def test_processes_of_the_same_labels_are_one_series() -> None:
    """That of the one that runs, else of the newest; others keep theirs."""
    told = [
        found(1, 0, is_alive=False),
        found(2, 0, is_alive=True),
        found(3, 0, is_alive=False),
        found(4, 1, is_alive=False),
        found(5, 1, is_alive=False),
        found(6, 2, is_alive=True),
    ]
    text = Metrics(cast("Figures", Told(told))).text().decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    seen = [(one.name, one.labels["rank"], one.labels.get("phase")) for one in samples]
    assert len(seen) == len(set(seen))
    up = {one.labels["rank"]: one.value for one in samples if one.name == "probing_up"}
    assert up == {"0": 1, "1": 0, "2": 1}
    steps = {one.labels["rank"]: one.value for one in samples if one.name == "probing_step"}
    assert steps == {"0": 2, "2": 6}


@pytest.mark.slow
def test_a_thousand_ranks_have_few_series_each() -> None:
    """One per figure, phase and finding, told apart by labels of few values beside the rank."""
    told = [
        replace(
            found(n + 1, n, is_alive=True),
            values={figure.name: 1.0 for figure in FIGURES},
            phases=dict.fromkeys((*STEP_PHASES, "gradient_sync"), 0.1),
            findings={"data-wait": "likely", "straggler": "certain"},
        )
        for n in range(1000)
    ]
    text = Metrics(cast("Figures", Told(told))).text().decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    assert len(samples) == 1000 * (1 + len(FIGURES) + len(STEP_PHASES) + 1 + 2)
    values: dict[str, set[str]] = {}
    for one in samples:
        for name, value in one.labels.items():
            values.setdefault(name, set()).add(value)
    assert {name: len(of) for name, of in values.items()} == {
        "job": 1, "pid": 1, "rank": 1000, "phase": len(STEP_PHASES) + 1, "rule": 2, "certainty": 2,
    }  # fmt: skip


def labels_of(text: str, name: str) -> list[dict[str, str]]:
    """Those of each series of that name."""
    families = text_string_to_metric_families(text)
    return [one.labels for family in families for one in family.samples if one.name == name]


def test_a_label_that_would_be_empty_is_left_out() -> None:
    """By an empty `job` Prometheus would have none; without, its own for the scrape."""
    told = [found(1, None, is_alive=True), found(2, 0, is_alive=False, job="night", ended="killed")]
    text = Metrics(cast("Figures", Told(told))).text().decode()
    assert '=""' not in text
    ended = {"job": "night", "rank": "0", "pid": "7"}
    assert labels_of(text, "probing_up") == [ended, {"job": "train_gpt", "pid": "7"}]
    assert labels_of(text, "probing_ended") == [{**ended, "reason": "killed"}]


class Here:
    """The processes of some run folders."""

    def __init__(self, *folders: ProcessFolder) -> None:
        self.are_alive = False
        self._folders = {folder.path.name: folder for folder in folders}

    def members(self, *, with_states: bool) -> MembersAnswer:
        """See `Roster`."""
        assert not with_states
        keyed = [
            replace(
                found(rank, rank, is_alive=self.are_alive or folder.pid != GONE).member, key=key
            )
            for rank, (key, folder) in enumerate(self._folders.items())
        ]
        return MembersAnswer(host="node", pid=1, version="", members=tuple(keyed))

    def folder(self, key: str) -> ProcessFolder:
        """See `Roster`."""
        return self._folders[key]


def gone(home: Path, **facts: Any) -> ProcessFolder:
    """The run folder of a process that has ended, of which its agent was told."""
    folder = RunDirectory(home).create_folder(GONE, 1)
    folder.write_card(card_of(GONE, 1, **facts))
    return folder


def test_what_a_launcher_writes_later_counts(tmp_path: Path) -> None:
    """A code that torchrun writes once all ranks have ended, where it saw the process run."""
    log = tmp_path / "log"
    log.write_text("")
    folder = gone(tmp_path / "home", launcher_log=str(log), started_ns=1)
    here = Here(folder)
    seen, missed = Figures(cast("Roster", here)), Figures(cast("Roster", here))
    here.are_alive = True
    seen.now()
    here.are_alive = False
    assert [one.ended for figures in (seen, missed) for one in figures.now()] == ["orderly"] * 2
    log.write_text(f"  exitcode  : 3 (pid: {GONE})\n")
    assert [one.ended for figures in (seen, missed) for one in figures.now()] == [
        "exit_code",
        "orderly",
    ]


def test_what_was_told_of_an_end_stays(tmp_path: Path) -> None:
    """Nothing is unsaid: not when the record of a crash goes, nor its folder's socket."""
    folder = gone(tmp_path / "home")
    folder.exception.write_bytes(b"of a version that is not known")
    figures = Figures(cast("Roster", Here(folder)))
    assert [one.ended for one in figures.now()] == ["exception"]
    folder.exception.unlink()
    assert [(one.ended, one.job) for one in figures.now()] == [("exception", "train")]


def values_of(*folders: ProcessFolder) -> list[Mapping[str, float | None]]:
    """The figures of the processes of these folders."""
    return [one.values for one in Figures(cast("Roster", Here(*folders))).now()]


def trained(home: Path, pid: int, *losses: float) -> ProcessFolder:
    """The run folder of a process whose steps had these losses; its norms are as they are."""
    folder = RunDirectory(home).create_folder(pid, 1)
    writer = RingWriter(STEPS, capacity=64)
    for step, loss in enumerate(losses):
        writer.write(step=step, start_ns=1, duration_ns=10**9, loss=loss, grad_norm=loss)
    writer.save(folder.ring("steps"))
    return folder


def test_a_loss_that_arrives_later_is_that_of_the_step_before(tmp_path: Path) -> None:
    """NaN among them, which an alert looks for; a loss that stays away is that of no step."""
    lost = trained(tmp_path / "home", 1, *[math.nan] * 9, NULL_FLOAT)
    known = trained(tmp_path / "home", 2, 3.0, *[NULL_FLOAT] * 7)
    unknown = trained(tmp_path / "home", 3, 3.0, *[NULL_FLOAT] * 8)
    for name in ("loss", "gradient_norm"):
        first, second, third = (values[name] for values in values_of(lost, known, unknown))
        assert first is not None
        assert math.isnan(first)
        assert (second, third) == (3.0, None)
    assert [values["step"] for values in values_of(lost, known, unknown)] == [9, 7, 8]


@pytest.mark.parametrize("table", ["steps", "overhead"])
def test_a_ring_that_cannot_be_opened_is_missing_of_its_process_alone(
    table: str, tmp_path: Path
) -> None:
    """The other processes of the machine have theirs."""
    odd, whole = (trained(tmp_path / "home", pid, 3.0) for pid in (1, 2))
    odd.ring(table).unlink(missing_ok=True)
    odd.ring(table).symlink_to("/etc/hostname")
    first, second = values_of(odd, whole)
    assert {name for name, value in first.items() if value is not None} == (
        set() if table == "steps" else {name for name, value in second.items() if value is not None}
    )
    assert second["loss"] == 3.0


def told(home: Path, pid: int, *rows: tuple[str, float], capacity: int = 512) -> ProcessFolder:
    """The run folder of a process whose script told these values by these names."""
    folder = RunDirectory(home).create_folder(pid, 1)
    names = list(dict.fromkeys(name for name, _ in rows))
    folder.names.write_bytes(encode_names(names))
    writer = RingWriter(METRICS, capacity=capacity)
    for name, value in rows:
        writer.write(name=names.index(name) + 1, value=value, start_ns=1)
    writer.save(folder.ring("metrics"))
    return folder


def test_what_scripts_tell_is_exported_where_it_is_asked_for(tmp_path: Path) -> None:
    """The last value of each name, as long as the process runs; of at most 64 names."""
    rows = [("val/loss", 2.0), ("acc", 0.5), ('a "b"\n', 1.0), ("val/loss", NULL_FLOAT)]
    folder = told(tmp_path / "home", 1, *rows)
    here = cast("Roster", Here(folder))
    assert [one.told for one in Figures(here).now()] == [{}]
    (one,) = Figures(here, "val/*, a ?b*").now()
    assert one.told == {"val/loss": 2.0, 'a "b"\n': 1.0}
    figures = Figures(here, "*")
    assert figures.now()[0].told == {"val/loss": 2.0, "acc": 0.5, 'a "b"\n': 1.0}
    text = Metrics(figures).text().decode()
    assert {labels["name"] for labels in labels_of(text, "probing_metric")} == {*dict(rows)}
    told(tmp_path / "home", 1, *rows, *[("acc", float(step)) for step in range(600)])
    assert figures.now()[0].told == {"val/loss": 2.0, "acc": 599.0, 'a "b"\n': 1.0}
    many = told(tmp_path / "home", 2, *[(f"name{number}", 1.0) for number in range(100)])
    assert len(Figures(cast("Roster", Here(many)), "*").now()[0].told) == MOST_NAMES
    folder.ring("metrics").write_bytes(b"")
    assert figures.now()[0].told["acc"] == 599.0


def test_otlp_has_what_scripts_tell_by_an_attribute() -> None:
    """One gauge with a point for each name."""
    data = pytest.importorskip("probing.cluster.node.otel.data", exc_type=ImportError)
    one = replace(found(1, 0, is_alive=True), told={"val/loss": 2.0, "acc": 0.5})
    (gauge,) = [made for made in data._metrics(one, 1) if made.name == "probing.metric"]
    told = {one.attributes["probing.metric.name"]: one.value for one in gauge.data.data_points}
    assert told == one.told


def test_otlp_has_what_the_doctor_finds_by_an_attribute() -> None:
    """How sure it is is another one, as the labels of Prometheus have it."""
    data = pytest.importorskip("probing.cluster.node.otel.data", exc_type=ImportError)
    one = replace(found(1, 0, is_alive=True), findings={"hang": "certain"})
    (gauge,) = [made for made in data._metrics(one, 1) if made.name == "probing.finding"]
    (point,) = gauge.data.data_points
    assert point.attributes["probing.finding.rule"] == "hang"
    assert point.attributes["probing.finding.certainty"] == "certain"


def test_a_ring_that_cannot_be_read_leaves_no_descriptor() -> None:
    """A server looks at it again and again."""
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            RingPeek(Path("/proc/self/mem"))
    assert not [path for path in _open_files() if path.endswith("/mem")]


def _open_files() -> Iterator[str]:
    """What descriptors of this process lead to."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another thread has closed it
            yield os.readlink(descriptor)
