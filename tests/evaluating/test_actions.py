"""Actions in running trainings: what they change, when, and what they leave alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import probing  # noqa: E402
from probing.diagnosis.checkpoints import read_checkpoint  # noqa: E402
from probing.errors import NoSuchAction, ProbingError  # noqa: E402
from probing.messages.about.act import (  # noqa: E402
    Act,
    Checkpoint,
    Cleanup,
    Clip,
    KeepLayers,
    Lr,
    NanGuard,
    Undo,
)
from tests.harness.targets import (  # noqa: E402
    DEADLINE_S,
    Target,
    clean_env,
    program_path,
    start,
    start_program,
    wait_until,
)

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A training in a function, whose rate a LambdaLR sets."""
    yield from _started("lambda", tmp_path_factory)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A training that sets its rate itself."""
    yield from _started("own", tmp_path_factory)


def _started(kind: str, factory: pytest.TempPathFactory) -> Iterator[Target]:
    cwd = factory.mktemp(kind)
    target = start_program("acted", kind, home=cwd / "home", cwd=cwd)
    target.wait_for_step(3)
    yield target
    target.reap()


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[Target], probing.Process]:
    """Makes a process under test one to ask."""

    def connect(target: Target) -> probing.Process:
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        return probing.connect(target.pid)

    return connect


Connect = Callable[[Target], probing.Process]


def _row(job: probing.Process, number: int) -> dict[str, object]:
    sql = f"SELECT * FROM python.actions WHERE action_id = {number}"
    (row,) = job.query(sql).to_pylist()
    return row


def _states(job: probing.Process, acts: list[Act]) -> list[str | None]:
    states = {act.number: act.state for act in job.acts().acts}
    return [states[act.number] for act in acts]


def _changes(act: Act) -> dict[str, tuple[str | None, str | None]]:
    return {change.what: (change.before, change.after) for change in act.changes}


def _last_lr(job: probing.Process, step: int) -> float:
    """The rate of the first step that has ended after one."""
    sql = f"SELECT lr FROM python.steps WHERE step > {step} AND lr IS NOT NULL ORDER BY step"
    while not (rows := job.query(sql).to_pylist()):
        pass
    return float(rows[0]["lr"])


def test_a_scaled_rate_is_told_recorded_and_undone(planned: Target, connect: Connect) -> None:
    """What it was, what it is, at which step, who: in the answer, in the table, after undoing."""
    job = connect(planned)
    act = job.act(Lr(scale=0.1))
    assert act.state == "done"
    assert not act.notes
    assert _changes(act)["base_lrs of LambdaLR, of group 0"] == ("0.5", "0.05")
    step = act.step or 0
    assert _last_lr(job, step) < 0.05
    row = _row(job, act.number)
    assert (row["name"], row["arguments"], row["step"]) == ("lr", "scale=0.1", step)
    assert row["pause_s"] == act.pause_s
    assert row["pid"] is not None
    undone = job.act(Undo())
    assert _last_lr(job, undone.step or 0) > 0.05
    assert _row(job, act.number)["state"] == "undone"
    assert _row(job, undone.number)["undoes"] == act.number
    with pytest.raises(ProbingError, match=f"action {act.number} is undone already") as refused:
        job.act(Undo(number=act.number))
    assert getattr(refused.value, "code", None) == NoSuchAction.code


def test_a_script_that_sets_its_rate_is_found_out(own: Target, connect: Connect) -> None:
    """The answer says that it did, and --hold puts the rate in place at every step until undone."""
    job = connect(own)
    act = job.act(Lr(scale=0.01))
    assert "the script sets the rate itself" in act.notes[0]
    assert "act lr --scale 0.01 --hold" in act.notes[0]
    held = job.act(Lr(value=0.25, hold=True))
    assert held.state == "in force"
    assert _last_lr(job, held.step or 0) == 0.25
    seen = float(str(job.eval("optimizer.param_groups[0]['lr']").value))
    assert seen < 0.25  # the script's own
    with pytest.raises(ProbingError, match="the rate is held"):
        job.act(Lr(scale=0.5))
    undone = job.act(Undo(number=held.number))
    assert _last_lr(job, (undone.step or 0) + 1) < 0.25


def test_a_rate_set_by_an_eval_that_does_not_stay_is_told(
    planned: Target, own: Target, connect: Connect
) -> None:
    """The next step shows it, the answer says who took it back, and what sets it for good."""
    code = "optimizer.param_groups[0]['lr'] = 1e-7"
    (note,) = connect(planned).eval(code).notes
    stays = "`act lr 1e-07` sets it so that it stays"
    told = rf"the rate 1e-07 did not stay: LambdaLR made it 0\.\d+ by the next step; {stays}"
    assert re.fullmatch(told, note)
    (note,) = connect(own).eval(code).notes
    assert "did not stay: the script made it 0." in note
    done = planned.run(str(planned.pid), "eval", code)
    assert (done.returncode, done.stdout) == (0, "")
    assert re.search(told, done.stderr)
    assert connect(planned).eval("optimizer.param_groups[0]['weight_decay'] = 0.02").notes == ()


def test_an_idle_scheduler_is_not_told_to_set_the_rate_that_the_script_sets(
    program: Callable[..., Target], connect: Connect
) -> None:
    """Whose last rate it is says nothing: the one who set it has moved since."""
    target = program("acted", "same", PROBING="1")
    target.wait_for_step(3)
    (note,) = connect(target).eval("optimizer.param_groups[0]['lr'] = 1e-7").notes
    assert "did not stay: the script made it 0.5 by" in note


def test_the_first_step_is_waited_for(program: Callable[..., Target], connect: Connect) -> None:
    """What is asked for before any optimizer has stepped comes with the first one that does."""
    target = program("acted", "late", PROBING="1")
    target.wait_for_agent()
    target.wait_for_output("ready")
    with pytest.raises(ProbingError, match="no optimizer has stepped") as refused:
        connect(target).act(NanGuard(do="warn"), timeout_s=0.5)
    assert "--timeout" in refused.value.help
    acting = subprocess.Popen(
        [sys.executable, "-m", "probing", str(target.pid), "act", "nan-guard", "warn"],
        cwd=target.cwd,
        env=target.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(connect(target).acts().acts) == 2, "it waits")
    (target.cwd / "go").touch()
    out, err = acting.communicate(timeout=DEADLINE_S)
    assert (acting.returncode, err) == (0, "")
    assert "in force" in out


def test_an_overwritten_rate_is_not_undone(own: Target, connect: Connect) -> None:
    """Undoing leaves the rate alone that the script has set itself, and says why."""
    job = connect(own)
    act = job.act(Lr(scale=0.01))
    undone = job.act(Undo(number=act.number))
    assert "lr of group 0" not in _changes(undone)
    assert "lr of group 0: the script has overwritten what the action had set" in undone.notes[0]
    rate = float(str(job.eval("optimizer.param_groups[0]['lr']").value))
    assert rate <= 0.5 / ((undone.step or 0) - 2)  # what the script's own rule makes of it


def test_all_optimizers_are_acted_on_and_named(
    tmp_path_factory: pytest.TempPathFactory, connect: Connect, tmp_path: Path
) -> None:
    """Those that it acts on, those that it leaves alone, one by its name; a checkpoint is whole."""
    for target in _started("pair", tmp_path_factory):
        job = connect(target)
        scaled = job.act(Lr(scale=0.5))
        assert {what.partition(":")[0] for what in _changes(scaled)} == {"opt_gen", "opt_critic"}
        assert scaled.notes == (
            "it acts on opt_critic, opt_gen",
            "left alone, since it has not stepped: SGD",
        )
        assert job.act(Undo()).changes
        one = job.act(Lr(value=0.1, optimizer="opt_critic"))
        assert "left alone: opt_gen" in one.notes
        with pytest.raises(ProbingError, match="no optimizer is called Lion; there are opt_critic"):
            job.act(Lr(value=0.1, optimizer="Lion"))
        with pytest.raises(ProbingError, match="there are 2 models: "):
            job.act(KeepLayers(count=1))
        clips = [job.act(Clip(max_norm=1.0, optimizer=name)) for name in ("opt_gen", "opt_critic")]
        assert _states(job, clips) == ["in force", "in force"]
        clips.append(job.act(Clip(max_norm=2.0)))
        assert _states(job, clips) == ["done", "done", "in force"]
        with pytest.raises(ProbingError, match=f"replaced by action {clips[2].number}"):
            job.act(Undo(number=clips[0].number))
        for number in (clips[2].number, clips[0].number):
            job.act(Undo(number=number))
        assert _states(job, clips) == ["undone", "in force", "undone"]
        act = job.act(Checkpoint(path=str(tmp_path / "pair.pt")))
        assert "gen, critic" in act.notes[0]
        state = torch.load(tmp_path / "pair.pt", weights_only=True)
        counts = [
            {float(own["step"]) for own in part["state"].values()}
            for part in (state["optimizer"], *state["other_optimizers"])
        ]
        assert counts[0] == counts[1]
        assert len(counts[0]) == 1


def test_clipping_holds_at_every_step(planned: Target, connect: Connect) -> None:
    """The gradients that each later step used have the norm; off, and undone, they have not."""
    job = connect(planned)
    first, second = job.act(Clip(max_norm=1e-3)), job.act(Clip(max_norm=1e-4))
    assert _changes(second) == {"gradient norm is clipped to": ("0.001", "0.0001")}
    code = "float(sum(p.grad.square().sum() for p in model.parameters()) ** 0.5)"
    norms = [float(str(r.value)) for r in job.eval_steps(code, times=5)]
    assert all(norm <= 1.001e-4 for norm in norms)
    assert [a.state for a in job.acts().acts if a.name == "clip"][-2:] == ["done", "in force"]
    with pytest.raises(ProbingError, match=f"replaced by action {second.number}"):
        job.act(Undo(number=first.number))
    job.act(Undo())
    assert _row(job, first.number)["state"] == "in force"
    job.act(Clip())
    assert float(str(next(iter(job.eval_steps(code))).value)) > 1e-3


def test_cleanup_says_what_each_part_has_freed(planned: Target, connect: Connect) -> None:
    """Unreachable objects are counted, and it leaves nothing to undo."""
    act = connect(planned).act(Cleanup())
    assert _changes(act)["unreachable objects"][1] == "0"
    assert not act.undo
    assert "no accelerator is in use" in act.notes[0]


def test_cleanup_leaves_gradients_to_the_script(own: Target, connect: Connect) -> None:
    """One that sets them to zero in place, after it has called the model, goes on."""
    act = connect(own).act(Cleanup())
    own.wait_for_step((act.step or 0) + 3)


def test_a_checkpoint_is_what_the_training_goes_on_from(
    planned: Target, connect: Connect, tmp_path: Path
) -> None:
    """A program that loads it has, to the bit, the losses that the training itself had then."""
    job = connect(planned)
    for copy_first in (False, True):
        path = tmp_path / f"saved-{copy_first}.pt"
        act = job.act(Checkpoint(path=str(path), copy_first=copy_first))
        step = act.step or 0
        content = read_checkpoint(str(path))
        assert content.step == step
        assert {"model", "optimizer", "scheduler", "rng"} <= set(content.keys)
        assert not content.unknown
        planned.wait_for_step(step + 30)
        argv = [sys.executable, str(program_path("acted")), "resumed", str(path), str(step + 20)]
        env, nowhere = clean_env(tmp_path), subprocess.DEVNULL
        resumed = start(argv, cwd=tmp_path, env=env, stdout=nowhere, stderr=subprocess.STDOUT)
        assert resumed.wait(DEADLINE_S) == 0
        lines = (tmp_path / "losses.txt").read_text("ascii").splitlines()
        assert len(lines) == 20
        had = (planned.cwd / "losses.txt").read_text("ascii").splitlines()
        assert lines == had[step : step + 20]
        (tmp_path / "losses.txt").unlink()
    assert [p.name for p in tmp_path.iterdir() if "unfinished" in p.name] == []


def test_a_checkpoint_harms_no_file(planned: Target, connect: Connect, tmp_path: Path) -> None:
    """What is there is not written over, but with --force; a relative path is the process's."""
    job, path = connect(planned), tmp_path / "kept.pt"
    path.write_text("mine", "ascii")
    with pytest.raises(ProbingError, match="exists"):
        job.act(Checkpoint(path=str(path)))
    assert path.read_text("ascii") == "mine"
    job.act(Checkpoint(path=str(path), force=True))
    assert read_checkpoint(str(path)).step
    job.act(Checkpoint(path="beside.pt"))
    assert read_checkpoint(str(planned.cwd / "beside.pt")).step
    with pytest.raises(ProbingError, match="there is no folder"):
        job.act(Checkpoint(path=str(tmp_path / "none" / "a.pt")))


def test_the_commands_say_what_they_did(planned: Target) -> None:
    """`act`, `act list` and `file checkpoint`, as typed."""
    pid = str(planned.pid)
    done = planned.run(pid, "act", "clip", "2")
    assert done.stdout.startswith("gradient norm is clipped to: 2\naction ")
    assert "in force before step" in done.stdout
    listed = json.loads(planned.run(pid, "act", "list", "--format", "json").stdout)
    assert listed[-1]["name"] == "clip"
    assert planned.run(pid, "act", "undo").returncode == 0
    done = planned.run(pid, "act", "clip", "off")
    assert "nothing was changed" in done.stdout
    done = planned.run(pid, "act", "lr")
    assert (done.returncode, "say a rate or --scale" in done.stderr) == (2, True)
    assert planned.run(pid, "act", "checkpoint", "typed.pt").returncode == 0
    done = planned.run("file", "checkpoint", "typed.pt")
    assert "all values that were read are finite" in done.stdout
    assert "model.0.weight" in done.stdout


def test_a_hung_training_is_left_as_it_is(program: Callable[..., Target], connect: Connect) -> None:
    """No step ends: one sentence after the time limit, and nothing is applied later either."""
    target = program("acted", "hangs")
    target.wait_for_step(4)
    job = connect(target)
    with pytest.raises(ProbingError, match="did not reach the end of a step within") as late:
        job.act(Lr(scale=0.1), timeout_s=0.5)
    assert late.value.exit_code == 5
    (row,) = job.query("SELECT state, step FROM python.actions").to_pylist()
    assert row == {"state": "timed out", "step": None}


def test_what_is_in_force_ends_with_the_agent(
    program: Callable[..., Target], connect: Connect
) -> None:
    """After `detach` no hook of an action is left on the optimizer, and the training goes on."""
    target = program("acted", "lambda")
    target.wait_for_step(3)
    job = connect(target)
    job.act(Clip(max_norm=1.0))
    job.act(Lr(value=0.1, hold=True))
    count = "len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)"
    assert job.eval(count).value == "3"
    job.eval(
        "import threading, time\nof = optimizer\ndef tell():\n    while len("
        "of._optimizer_step_pre_hooks) + len(of._optimizer_step_post_hooks):\n        "
        "time.sleep(0.01)\n    print('no hooks', flush=True)\n"
        "threading.Thread(target=tell, daemon=True).start()"
    )
    target.run(str(target.pid), "detach")
    target.wait_for_output("no hooks")


@pytest.mark.slow
@pytest.mark.parametrize(
    "times", [100, pytest.param(5000, marks=pytest.mark.nightly)], ids=["hundreds", "thousands"]
)
def test_no_checkpoint_is_torn_where_plain_copies_are(
    program: Callable[..., Target], connect: Connect, times: int
) -> None:
    """All parameters hold one number after each step, and so they do in each checkpoint.

    The same parameters, copied by a thread of the program's own, do not.
    """
    target = program("acted", "even")
    target.wait_for_output("torn")
    target.wait_for_step(3)
    job, path = connect(target), target.cwd / "even.pt"
    seen = set()
    for number in range(times):
        asked = Checkpoint(path=str(path), force=True, copy_first=bool(number % 2))
        act = job.act(asked)
        state = torch.load(path, weights_only=True)
        values = {float(v) for part in state["model"].values() for v in part.unique()}
        assert values == {-(act.step or 0) * 2**-10}
        seen.add(act.step)
    assert len(seen) == times
