"""What a process on an accelerator looks like when nothing is wrong with it, and when it is."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest

from probing.diagnosis.doctor import first_look
from probing.diagnosis.doctor.first_look import Open, open_files
from probing.diagnosis.doctor.not_looked_at import NotLookedAt
from probing.diagnosis.doctor.rules import piling
from probing.linux import process

from .made import facts, signs, steps
from .parameter_cases import unsynced

if TYPE_CHECKING:
    from pathlib import Path

    from probing.diagnosis.doctor.facts import Facts

    from .made import Live

pytestmark = pytest.mark.anypython


@pytest.fixture
def only_own_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What other tests have left open in this process is none of a test's files."""

    def opened(pid: int) -> list[Open]:
        return [one for one in open_files(pid) if one.path.startswith(str(tmp_path))]

    for module in (first_look, piling):
        monkeypatch.setattr(module, "open_files", opened)


@pytest.mark.parametrize(
    ("path", "says"), [("/dev/nvidia0", 0), ("/dev/nvidia-uvm", 0), ("/dev/shm/torch_7_0", 1)]
)
def test_the_files_of_a_driver_are_not_piling_up(
    monkeypatch: pytest.MonkeyPatch, path: str, says: int
) -> None:
    """A process on an H100 has `/dev/nvidia0` open 24 times from its start on."""
    links = [Open(path)] * 24 + [Open("/etc/hosts")]
    monkeypatch.setattr(piling, "open_files", lambda pid: links)
    assert len(signs("descriptors", facts({}))) == says


@pytest.mark.parametrize(
    ("paths", "mode", "certainty"),
    [
        (24, "rb", "possible"),
        (24, "r+b", "possible"),  # as numpy.memmap opens it, if not told how
        (24, "ab", "likely"),
        (8, "rb", "likely"),
    ],
)
@pytest.mark.usefixtures("only_own_files")
def test_parts_of_a_data_set_may_stay_open(
    tmp_path: Path, paths: int, mode: str, certainty: str
) -> None:
    """Files that are read, each open once, may be meant; not logs, nor one file again and again."""
    parts = [tmp_path / f"shard_{n:05d}.bin" for n in range(paths)]
    for part in parts:
        part.touch()
    with contextlib.ExitStack() as stack:
        for n in range(24):
            stack.enter_context(parts[n % paths].open(mode))
        (sign,) = signs("descriptors", facts({}, pid=os.getpid()))
    assert (sign.certainty, sign.summary[:8]) == (certainty, "24 files")


@pytest.mark.usefixtures("only_own_files")
def test_files_of_which_more_are_open_than_at_first_are_no_parts(tmp_path: Path) -> None:
    """An image that nobody closes is another file each time, and there are more a moment later."""
    with contextlib.ExitStack() as stack:
        for n in range(30):
            if n == 24:
                made = facts({}, pid=os.getpid(), is_here=True)
            stack.enter_context((tmp_path / f"{n}.png").open("w+"))
        (sign,) = signs("descriptors", made)
    assert (sign.certainty, sign.summary[:8]) == ("likely", "30 files")


def test_the_parameters_of_a_shared_model_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a file in shared memory; that nobody lets go of them is said where more come."""
    names = [Open(f"/dev/shm/torch_7_{1000 + n}_{n} (deleted)") for n in range(30)]
    monkeypatch.setattr(piling, "open_files", lambda pid: names)
    for before, certainty, words in (
        (30, "possible", "in shared memory; the limit"),
        (24, "likely", "in shared memory that nobody lets go of; the limit"),
    ):
        made = facts({})
        made.first.open_files = names[:before]
        (sign,) = signs("descriptors", made)
        assert (sign.certainty, words in sign.summary) == (certainty, True), sign
        assert ("Nothing, if" in sign.fix) == (certainty == "possible")


@pytest.mark.parametrize(
    ("links", "told"),
    [
        ([Open(f"/data/{n}.png") for n in range(512)], "512 files"),  # half of the limit
        ([Open(f"/data/{n}") for n in range(64)] + [Open("/log", True)] * 24, "24 files"),
    ],
)
def test_the_surest_of_open_files_are_told(
    monkeypatch: pytest.MonkeyPatch, links: list[Open], told: str
) -> None:
    """Parts of a data set hide no leak, and become one as they come near the limit."""
    monkeypatch.setattr(piling, "open_files", lambda pid: links)
    monkeypatch.setattr(process, "file_limit", lambda pid: 1024)
    (sign,) = signs("descriptors", facts({}))
    assert sign.certainty == "likely"
    assert sign.summary.startswith(told)


def asked(device: str, *, timed: int = 1, **values: str) -> Facts:
    """A training with a parameter on the device, as torch describes it there."""
    values |= {"device": "NVIDIA H100 80GB HBM3", "float32_matmul_precision": "highest"}
    rows = [{"kind": "torch", "name": name, "value": value} for name, value in values.items()]
    parameters = [{"trainable": True, "dtype": "float32", "device": device}]
    times = [{"step": 300, "depth": 0, "stage": "forward", "device_s": 0.04}] * timed
    return facts({"device_times": times}, {"environment": rows, "parameters": parameters})


def test_tf32_is_asked_for_where_there_is_an_accelerator() -> None:
    """On a CPU that is not looked at, and said so; under autocast its matrices are of 16 bits."""
    assert [sign.certainty for sign in signs("tf32-off", asked("cuda:0"))] == ["possible"]
    assert not signs("tf32-off", asked("cuda:0", autocast="bfloat16"))
    for there, why in ((asked("cpu"), "no accelerator"), (asked("cuda:0", timed=0), "timed")):
        with pytest.raises(NotLookedAt, match=why):
            signs("tf32-off", there)


def test_gradients_that_are_not_averaged_need_collectives_on_record() -> None:
    """And enough steps: whoever averages every so many of them is healthy."""
    unseen = unsynced(note="there are collectives that are not seen")
    few = unsynced(size=36, every=1, parameters=36)
    for there, why in (
        (unseen, "collectives"),
        (unsynced(count=100), "100 steps"),
        (few, "36 B only"),
    ):
        with pytest.raises(NotLookedAt, match=why):
            signs("never-synced", there)


def test_one_timed_step_tells_how_busy_the_device_is() -> None:
    """Long before the newest: to time a step is dear, so that is done in few."""
    made = steps(400, device_s=0.1, host_bound=True)
    times = [{"step": 60, "depth": 0, "stage": "forward", "device_s": 0.02}]
    (sign,) = signs("host-bound", facts({"steps": made, "device_times": times}))
    assert "it works for 20 %" in sign.summary


@pytest.mark.parametrize(
    ("states", "says"),
    [
        ({"torch": "same", "torch device": None}, 0),
        ({"torch": "same", "torch device": "same"}, 1),
        ({"torch": None, "torch device": "same"}, 1),
        ({"torch": "same"}, 1),
        ({"torch": None, "python": "same"}, 0),
        ({"torch": 7}, 1),  # it comes round
        ({"torch": None, "numpy": 20}, 1),
        ({"torch": 40}, 0),  # not while it is looked at
    ],
)
def test_dropout_on_a_device_draws_from_its_generator(
    states: dict[str, str | int | None], says: int
) -> None:
    """That of the CPU stays as it is then, which is no sign of anything."""
    number = itertools.count()

    def looked_at() -> list[dict[str, Any]]:
        step = next(number)
        return [
            {
                "kind": "random",
                "parameter": name,
                "checksum": str(step % state if isinstance(state, int) else state or step),
                "step": step,
            }
            for name, state in states.items()
        ]

    module = {"model": "Net", "class": "Dropout", "training": True, "dropout": 0.1}
    parameters = [{"model": "Net", "optimizers": 1}]
    live: Live = {
        "modules": [module],
        "parameters": parameters,
        "parameter_checksums": looked_at,
    }
    assert len(signs("reseeded", facts({"steps": steps(60)}, live))) == says


def test_a_dropout_that_is_not_called_draws_nothing() -> None:
    """A generator may stay where it is in a model whose dropout was left out of its forward."""
    number = itertools.count()

    def looked_at() -> list[dict[str, Any]]:
        return [{"kind": "random", "parameter": "torch", "checksum": "a", "step": next(number)}]

    module = {"model": "Net", "class": "Dropout", "training": True, "dropout": 0.1}
    beside = {"model": "Net", "class": "Linear", "training": True, "dropout": None,
              "observed_step": 59}  # fmt: skip
    found = []
    for seen in (None, 59):
        live: Live = {
            "modules": [{**module, "observed_step": seen}, beside],
            "parameters": [{"model": "Net", "optimizers": 1}],
            "parameter_checksums": looked_at,
        }
        found.append(len(signs("reseeded", facts({"steps": steps(60)}, live))))
    assert found == [0, 1]


def test_a_frozen_part_in_training_mode_is_told() -> None:
    """A teacher that model.train() has put back; not one in evaluation mode or without dropout."""

    def parts(seen: Any = 1, **columns: Any) -> list[str]:
        base = {"model": "Net", "class": "Linear", "training": True, "trainable": 9,
                "parameters": 9, "observed_step": seen, "dropout": None}  # fmt: skip
        frozen = {**base, "trainable": 0}
        rows = [
            {**base, "module": "", "class": "Net"},
            {**base, "module": "student"},
            {**frozen, "module": "teacher", "class": "Sequential"},
            {**frozen, "module": "teacher.0"},
            {**frozen, "module": "teacher.1", "class": "Dropout", "dropout": 0.4,
             "parameters": 0, **columns},
        ]  # fmt: skip
        live: Live = {"modules": rows, "parameters": [{"model": "Net", "optimizers": 1}]}
        return [sign.summary for sign in signs("frozen-in-training", facts({}, live))]

    (summary,) = parts()
    assert "teacher of Net is frozen and in training mode: Dropout" in summary
    assert parts(training=False) == parts(dropout=0.0) == parts(observed_step=None) == []
    unseen = parts(None, observed_step=None)
    assert unseen == [summary]
    assert len(parts(**{"class": "BatchNorm1d"})) == 1
    assert parts(**{"class": "FrozenBatchNorm2d", "dropout": None}) == []
