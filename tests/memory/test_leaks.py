"""What keeps memory is found in a real training, down to one number per step, and only that.

All tests share one process, whose way of training is changed from outside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

import probing
from probing.cli.render.memory.leak import render_leak
from probing.diagnosis.leaks.growth import PHASES
from probing.diagnosis.leaks.report import LeakReport
from probing.diagnosis.memory.leaking import find_leaks
from probing.diagnosis.memory.memory_report import referrers_of
from tests.harness.targets import DEADLINE_S, Target, start_program

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The program that trains in the way that it is told."""
    cwd = tmp_path_factory.mktemp("leaks")
    target = start_program("keeping", "plain", home=cwd / "home", cwd=cwd)
    target.wait_for_output("ready")
    yield target
    target.reap()


@pytest.fixture(autouse=True)
def own_home(keeping: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `probing.connect` find the program."""
    monkeypatch.setenv("PROBING_HOME", str(keeping.home))


def watch(target: Target, way: str, steps: int = 8, by: str = "category") -> LeakReport:
    """Have it train in a way, and watch that."""
    process = probing.connect(target.pid)
    process.eval(f"ways[:] = [{way!r}]")
    target.wait_for_step(target.step() + 3)  # the way before has let go of what it held
    process.eval("__import__('gc').collect()")  # and nothing of it goes while it is watched
    return find_leaks(process, steps, timeout_s=DEADLINE_S, by=by)


def told(report: LeakReport) -> str:
    """All that was found, for a failure: pytest shows the ends of a long tuple only."""
    rows = [f"  {row}" for found in report.findings for row in found.rows]
    return "\n".join([f"{report.steps} steps, {report.live}", *map(repr, report.findings), *rows])


@pytest.mark.parametrize("way", ["plain", "accumulation", "ema", "bounded", "evaluation", "floats"])
def test_a_healthy_training_has_no_leak(keeping: Target, way: str) -> None:
    """Accumulated gradients, averaged weights, a short history and evaluations are no leak."""
    report = watch(keeping, way)
    assert report.failure is None
    assert report.steps == 8
    assert report.findings == ()
    assert report.live.kind == "flat"


def test_a_watch_that_is_about_to_end_is_waited_for(keeping: Target) -> None:
    """Whoever asks as another one's watch has a few steps to go gets an answer, too."""
    probing.connect(keeping.pid).arm("leak", 8)
    report = watch(keeping, "plain")
    assert (report.failure, report.steps) == (None, 8)


def test_a_watch_that_may_not_hold_the_training_so_long_gives_up(keeping: Target) -> None:
    """After one look, which is how it knows; the next watch is as any other."""
    process = probing.connect(keeping.pid)
    report = find_leaks(process, 8, timeout_s=DEADLINE_S, most_held_s=1e-9)
    assert report.failure is not None
    assert report.failure.startswith("to look at what is in memory holds the training ")
    (armed,) = (one for one in process.armed().armed if one.what == "leak")
    assert (armed.done, report.findings) == (0, ())
    whole = find_leaks(process, 5, timeout_s=DEADLINE_S, most_held_s=DEADLINE_S)
    assert (whole.failure, whole.steps) == (None, 5)


def test_a_history_with_a_limit_is_no_leak_while_it_fills(keeping: Target) -> None:
    """A deque that still fills up is told as what it is, with its limit."""
    process = probing.connect(keeping.pid)
    process.eval("usual, last_losses = last_losses, deque(maxlen=1_000_000)", assign=True)
    report = watch(keeping, "bounded")
    process.eval("last_losses = usual", assign=True)
    process.eval("last_losses = deque(maxlen=12)", assign=True)
    (found,) = report.findings
    assert (found.mistake, found.is_leak, found.rows[0]["bound"]) == ("bounded", False, 1_000_000)


def test_a_number_kept_per_step_is_found(keeping: Target) -> None:
    """One kept scalar is 4 bytes and one tensor per step, exactly, with the line that keeps it."""
    report = watch(keeping, "kept_loss")
    (found,) = report.findings
    assert (found.mistake, found.bytes_per_step, found.tensors_per_step) == ("numbers", 4.0, 1.0)
    live = report.live
    assert live.slope == 4.0, told(report)
    # On a busy machine a step may end while the next batch is being made.
    assert live.kind in {"slope", "uneven"}, told(report)
    (row,) = found.rows
    assert (row["holder"], row["path"], row["place"]) == ("global", "kept_numbers[...]", "__main__")
    with open(row["file"], encoding="utf-8") as source:
        assert "kept_numbers.append(" in source.readlines()[row["lineno"] - 1]


def test_what_stays_is_never_called_flat(keeping: Target) -> None:
    """Beside tensors of all sizes that come and go; and each of these steps has its phases."""
    report = watch(keeping, "uneven", by="phase")
    assert sum(found.bytes_per_step or 0 for found in report.leaks) == 1024
    assert (report.live.kind, report.live.slope) == ("uneven", 1024)
    assert [phase.name for phase in report.phases] == list(PHASES.values())
    assert not any("not on record" in note for note in report.notes)
    text = render_leak(report, width=None, color=False)
    assert "flat" not in text
    assert "uneven" in text


def test_a_kept_graph_is_found_to_the_byte(keeping: Target) -> None:
    """A loss kept with its graph costs what torch's own hooks say that its graph saves."""
    result = probing.connect(keeping.pid).eval("print(saved_by_one_graph(trainer))")
    saved = json.loads(result.output)
    report = watch(keeping, "kept_graph", by="module")
    assert len(report.findings) == 1, report.findings
    (found,) = report.findings
    assert found.mistake == "loss"
    assert found.bytes_per_step == saved["bytes"]
    assert found.tensors_per_step == saved["tensors"]
    assert {row["holder"] for row in found.rows} == {"global", "graph"}
    assert {row["path"] for row in found.rows} == {"all_losses[...]"}
    growth = {each.category: each.last_bytes - each.first_bytes for each in report.categories}
    assert sum(growth.values()) == 8 * saved["bytes"]
    assert growth["activations"] > 7 * (saved["bytes"] - 4096)
    modules = {group.name: group.last_bytes - group.first_bytes for group in report.groups}
    assert sum(modules.values()) == 8 * saved["bytes"]
    assert {"0.line", "0.norm", "1.line", "1.norm"} <= set(modules), "in whose calls it was saved"
    assert modules["0.line"] == modules["1.line"] > 0


@pytest.mark.parametrize(
    ("way", "mistake", "holder", "path"),
    [
        ("outputs", "outputs", "global", "trainer.history['out'][...]"),
        ("batches", "batches", "global", "trainer.batches[...]"),
        ("tracebacks", "traceback", "traceback", "trainer.errors[...]"),
        ("closure", "tensors", "closure", "seen[...]"),
        ("hooks", "hooks", "attribute", "0.forward_hooks"),
        ("modules", "modules", None, None),
        ("texts", "items", "global", "kept_bytes"),
        ("cached", "items", "global", "trainer.cache"),
        ("files", "descriptors", "unknown", "/proc/*/stat"),
        ("threads", "threads", None, None),
        ("cycles", "cycle", "cycle", None),
    ],
)
def test_a_mistake_has_its_name(
    keeping: Target, way: str, mistake: str, holder: str | None, path: str | None
) -> None:
    """Each of the common mistakes is told by name, with who refers to what is kept."""
    report = watch(keeping, way)
    assert [found.mistake for found in report.findings] == [mistake], told(report)
    (found,) = report.findings
    assert found.is_leak
    if holder is not None:
        assert {(row["holder"], row["path"]) for row in found.rows} == {(holder, path)}


def test_collections_have_their_size_and_their_line(keeping: Target) -> None:
    """About what a list of bytes grows by per step is told, with the line that adds to it."""
    (found,) = watch(keeping, "texts").findings
    steps = int(probing.connect(keeping.pid).eval("trainer.steps").value or 0)
    assert found.bytes_per_step == pytest.approx(2000 + steps, rel=0.3)
    (row,) = found.rows
    with open(row["file"], encoding="utf-8") as source:
        assert "kept_bytes.append(" in source.readlines()[row["lineno"] - 1]
    (threads,) = watch(keeping, "threads").findings
    assert threads.rows[0]["place"] == "wait_for_ever"


def test_a_leak_in_a_loader_worker_is_found(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a data set keeps grows in another process, and is told with where samples are made."""
    target = program("forgetful")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    target.wait_for_step(5)
    process = probing.connect(target.pid)
    report = find_leaks(process, 8, timeout_s=DEADLINE_S)
    (found,) = [each for each in report.findings if each.mistake == "workers"]
    assert found.bytes_per_step == pytest.approx(4 << 20, rel=0.3)
    assert found.rows[0]["path"] == "Forgetful.__getitem__"


def test_a_kept_result_that_its_own_graph_has_saved_has_its_holder(keeping: Target) -> None:
    """What a node saves of its own result is not taken for the tensor that a list keeps."""
    report = watch(keeping, "own_results")
    found = {(row["holder"], row["path"]) for each in report.findings for row in each.rows}
    names = ("sigmoid", "relu", "tanh", "exp", "softmax")
    kept = {f"trainer.gates['{name}'][...]" for name in names}
    assert {path for _, path in found} == kept, found
    # A leaf that a graph is to give a gradient to looks like what was computed from it.
    assert {holder for holder, _ in found} <= {"global", "graph"}, found
    for each in report.findings:
        for row in each.rows:
            if row["holder"] == "global":
                with open(row["file"], encoding="utf-8") as source:
                    assert ".append(" in source.readlines()[row["lineno"] - 1]


def test_a_state_that_is_carried_on_with_its_graph_is_found(keeping: Target) -> None:
    """A chain of graphs is held by the last of them, whose name is told."""
    report = watch(keeping, "carried")
    (found,) = report.findings
    assert found.mistake == "graph"
    assert {(row["holder"], row["path"]) for row in found.rows} == {("graph", "trainer.hidden")}


def test_looking_leaves_no_tensor_behind(keeping: Target) -> None:
    """There are as many tensors after a watch as before, also where nodes save their results."""
    process = probing.connect(keeping.pid)
    process.eval("import torch\nprobe = [torch.rand(7, 13, requires_grad=True).sigmoid()]")
    count = (
        "import gc, torch\nsum(type(t) is torch.Tensor and t.shape == (7, 13) for t in"
        " gc.get_objects())"
    )
    before = process.eval(count, timeout_s=DEADLINE_S)
    watch(keeping, "plain", steps=3)
    list(process.live("tensors", wait_s=DEADLINE_S).dicts())
    after = process.eval(count, timeout_s=DEADLINE_S)
    assert (after.value, after.error) == (before.value, None) == ("2", None)


def test_gradients_that_are_never_zeroed_are_told(keeping: Target) -> None:
    """A missing zero_grad is named, and is no leak: gradients keep their place."""
    report = watch(keeping, "unzeroed")
    (found,) = report.findings
    assert (found.mistake, found.is_leak) == ("zero_grad", False)
    assert report.leaks == ()


def test_who_refers_to_a_tensor_is_told_when_asked(keeping: Target) -> None:
    """A tensor in a list, one that only a graph keeps, and a parameter each have their holder."""
    process = probing.connect(keeping.pid)
    process.eval("ways[:] = ['kept_graph']")
    keeping.wait_for_step(keeping.step() + 3)
    wanted = json.loads(
        process.eval("print(one_kept(all_losses, trainer.model[-1].weight))").output
    )
    rows, _ = referrers_of(process, wanted, timeout_s=DEADLINE_S)
    found = {name: {(r["holder"], r["path"]) for r in rows[row["address"]]}
             for name, row in zip(("listed", "graph", "weight"), wanted, strict=True)}  # fmt: skip
    assert found["listed"] == {("global", "all_losses[...]")}
    assert found["graph"] == {("graph", "all_losses[...]")}
    assert ("attribute", "_parameters['weight']") in found["weight"]
    nothing, _ = referrers_of(process, [{"address": 64, "bytes": 4}], timeout_s=DEADLINE_S)
    assert nothing == {}


def test_a_graph_that_was_not_walked_may_refer_to_a_tensor(keeping: Target) -> None:
    """Native code is named where all graphs were walked; what there was no time for is unknown."""
    process = probing.connect(keeping.pid)
    process.eval("ways[:] = ['kept_graph']")
    keeping.wait_for_step(keeping.step() + 3)
    _, wanted, _ = json.loads(
        process.eval("print(one_kept(all_losses, trainer.model[-1].weight))").output
    )
    limit = "probing.agent.sources.leaks.references.tensors_over._LONGEST_S"
    before = process.eval(f"import {limit.rpartition('.')[0]}; {limit}").value
    process.eval(f"{limit} = 0.0")
    try:
        rows, _ = referrers_of(process, [wanted], timeout_s=DEADLINE_S)
    finally:
        process.eval(f"{limit} = {before}")
    assert [row["holder"] for row in rows[wanted["address"]]] == ["unknown"]


def test_the_command_shows_it_and_leaves_nothing_behind(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen and the JSON say the same, exit with 0, and nothing stays in the training."""
    keeping = program("keeping", "plain")
    keeping.wait_for_step(3)
    monkeypatch.setenv("PROBING_HOME", str(keeping.home))
    process = probing.connect(keeping.pid)
    process.eval("ways[:] = ['kept_loss']")
    shown = keeping.run("leak", "-t", str(keeping.pid))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("leak in 8 steps")
    assert "kept_numbers" in shown.stdout
    asked = keeping.run("leak", "-t", str(keeping.pid), "--steps", "3", "--format", "json")
    assert json.loads(asked.stdout)["steps"] == 3
    left = process.eval(
        "import collections, gc; gc.collect(); print(collections.Counter("
        "type(thing).__qualname__ for thing in gc.get_objects()"
        " if type(thing).__name__ in {'_Node', 'Storage'}"
        " and type(thing).__module__.startswith('probing.')))",
        timeout_s=DEADLINE_S,
    )
    assert (left.output, left.error) == ("Counter()\n", None)


def test_the_steps_that_were_watched_make_ages_known(keeping: Target) -> None:
    """What came in a watched step has its age, also later; what was there before has none of it."""
    watch(keeping, "kept_loss", steps=4)
    process = probing.connect(keeping.pid)
    (last,) = process.query("SELECT max(last_step) AS step FROM python.leaks").to_pylist()
    rows = process.live("tensors", wait_s=DEADLINE_S).dicts()
    now = [row for row in rows if row["moment"] == "now"]
    ages = sorted(row["age_steps"] for row in now if row["age_steps"] is not None)
    since = now[0]["step"] - last["step"]
    assert [age - since for age in ages[:4]] == [0, 1, 2, 3], "one number kept per watched step"
    before = {row["age_steps"] for row in rows if row["category"] == "parameters"} - {None}
    assert all(age > since + 4 for age in before), "known, if at all, from an earlier watch"
    young = {
        row["age_steps"]
        for row in rows
        if (row["moment"], row["category"]) == ("before_backward", "activations")
    }
    # The graphs that the tests before this one kept are activations too, all older than this watch.
    assert {age for age in young if age is not None and age <= since + 4} == {0}
