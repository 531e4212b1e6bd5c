"""Actions on the ranks of a job: at one step of all, or on none."""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import probing  # noqa: E402
from probing.errors import ProbingError  # noqa: E402
from probing.messages.about.act import Checkpoint, Clip, Lr, NanGuard  # noqa: E402
from tests.harness.jobs import Job, start_job  # noqa: E402
from tests.harness.targets import start_program, stop, wait_until  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]


class Ranks:
    """A job of two ranks of ``guarded.py``."""

    def __init__(self, job: Job) -> None:
        self.job = job
        for rank in range(job.ranks):
            self.wait_for_lines(rank, 4)

    def lines(self, rank: int) -> list[list[str]]:
        """What a rank has written of its steps."""
        path = self.job.cwd / f"log-{rank}.txt"
        text = path.read_text("ascii") if path.exists() else ""
        return [line.split() for line in text.split("\n")[:-1]]

    def wait_for_lines(self, rank: int, lines: int) -> None:
        """Wait until a rank has made so many steps."""
        wait_until(lambda: len(self.lines(rank)) >= lines, f"{lines} steps of rank {rank}")

    @property
    def name(self) -> str:
        """What the job is called, in words."""
        card = self.job.folder(0).read_card()
        assert card is not None
        return f"job {card.job}"

    def process(self, rank: int) -> probing.Process:
        """A rank, to be asked."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PROBING_HOME", str(self.job.home))
            return probing.connect(self.job.pid(rank))

    def act(self, *args: str) -> Any:
        """Run a command on all ranks."""
        return self.job.run("-t", "all", "act", *args)

    def steps_with(self, rank: int, rate: float) -> list[int]:
        """The steps that a rank has made with a rate."""
        return [int(n) for n, lr, _ in self.lines(rank) if float(lr) == pytest.approx(rate)]

    def go_on(self) -> int:
        """Wait until all ranks have made steps from now on; returns one that all have made."""
        last = max(len(self.lines(rank)) for rank in range(2)) + 2
        wait_until(lambda: all(len(self.lines(rank)) > last for rank in range(2)), "more steps")
        return last

    def are_equal(self, step: int) -> bool:
        """Whether the parameters of both ranks are, after a step."""
        return self.lines(0)[step - 1][2] == self.lines(1)[step - 1][2]


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Two ranks of DistributedDataParallel."""
    job = start_job("guarded", "ddp", ranks=2, cwd=tmp_path_factory.mktemp("ddp"))
    yield Ranks(job)
    job.reap()


def test_a_rate_changes_at_the_same_step_of_all(ddp: Ranks) -> None:
    """And is undone at one; the copies of the model stay equal."""
    done = ddp.act("lr", "--scale", "0.1")
    assert done.returncode == 0, done.stderr
    assert f"\nranks 0-1 of {ddp.name} (lr): done before step " in done.stdout
    assert "asked 2 ranks: all answered" in done.stderr
    undone = ddp.act("undo")
    assert undone.returncode == 0, undone.stderr
    last = ddp.go_on()
    slow = [ddp.steps_with(rank, 0.001) for rank in range(2)]
    assert slow[0]
    assert slow[0] == slow[1]
    assert slow[0][-1] < last
    assert ddp.are_equal(last)


def test_one_rank_alone_is_refused(ddp: Ranks) -> None:
    """What would let the copies drift apart says how to ask all; warning may be of one rank."""
    one = ddp.process(0)
    for asked in (Lr(scale=0.5), Clip(max_norm=1.0), NanGuard(do="skip")):
        with pytest.raises(ProbingError, match="on 1 of 2 ranks would let the copies") as refused:
            one.act(asked)
        assert f"`probing -t {ddp.name.replace(' ', ':')} act ...`" in refused.value.help
    assert one.act(NanGuard(do="warn")).state == "in force"
    assert one.act(NanGuard(do="off")).state == "done"


def test_one_endpoint_changes_one_job(ddp: Ranks, tmp_path: Any) -> None:
    """What stands for a job and an unrelated process changes nothing, and names the job.

    Each by an endpoint of its own is changed.
    """
    other = start_program("idle", home=ddp.job.home, cwd=tmp_path, PROBING="all")
    try:
        other.wait_for_agent()
        for words in (("eval", "1 + 1"), ("arm", "gradients"), ("config", "recording=on"),
                      ("act", "cleanup")):  # fmt: skip
            done = ddp.job.run("-t", "all", *words)
            assert done.returncode == 2, done.stdout
            assert "stands for 1 job and 1 process that do not belong together" in done.stderr
            assert f"`probing -t {ddp.name.replace(' ', ':')} {words[0]} " in done.stderr
            assert str(other.pid) in done.stderr
        each = ddp.job.run("-t", ddp.name.replace(" ", ":"), "-t", str(other.pid), "eval", "1 + 1")
        assert (each.returncode, each.stdout.split()[-1]) == (0, "2"), each.stderr
    finally:
        other.reap()


def test_rank_0_writes_the_checkpoint(ddp: Ranks) -> None:
    """The other one says so, and changes nothing; the file's step is that of the ranks."""
    done = ddp.act("checkpoint", "saved.pt")
    assert done.returncode == 0, done.stderr
    assert "rank 1: this is rank 1: all have the same state, and rank 0 writes it" in done.stderr
    state = torch.load(ddp.job.cwd / "saved.pt", weights_only=True)
    total = sum(part.double().sum().item() for part in state["model"].values())
    assert set(state["model"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    wait_until(lambda: len(ddp.lines(0)) > int(state["step"]), "the next step")
    assert float(ddp.lines(0)[int(state["step"]) - 1][2]) == total
    alone = ddp.process(1).act(Checkpoint(path=str(ddp.job.cwd / "other.pt")))
    assert "rank 0 writes it" in alone.notes[0]


def test_all_ranks_skip_what_is_bad_on_one(ddp: Ranks) -> None:
    """One rank's loss is NaN: both skip the same steps, and stay equal and finite."""
    done = ddp.act("nan-guard", "skip")
    assert done.returncode == 0, done.stderr
    ddp.process(1).eval("poison[0] = 3")
    wait_until(lambda: all(len(_bad(ddp, rank)) == 3 for rank in range(2)), "bad steps")
    rows = [_bad(ddp, rank) for rank in range(2)]
    assert [(r["outcome"], r["consecutive"]) for r in rows[0]] == [
        ("skipped", 1), ("skipped", 2), ("skipped", 3)
    ]  # fmt: skip
    assert [r["step"] for r in rows[0]] == [r["step"] for r in rows[1]]
    assert math.isfinite(rows[0][0]["loss"])
    assert math.isnan(rows[1][0]["loss"])
    last = ddp.go_on()
    assert math.isfinite(float(ddp.lines(0)[last - 1][2]))
    assert ddp.are_equal(last)
    with pytest.raises(ProbingError, match="to end skipping on 1 of 2 ranks"):
        ddp.process(0).act(NanGuard(do="off"))
    assert ddp.act("nan-guard", "off").returncode == 0


def test_what_fails_on_one_rank_is_in_place_on_none(tmp_path: Any) -> None:
    """A rank refuses as it is to apply it: it is taken back where it was applied already.

    In a job of its own: with a rate of 0 on one rank the copies drift apart.
    """
    job = start_job("guarded", "ddp", ranks=2, cwd=tmp_path)
    try:
        ranks = Ranks(job)
        ranks.process(1).eval("optimizers[0].param_groups[0]['lr'] = 0.0")
        done = ranks.act("lr", "0.5")
        assert done.returncode == 4
        assert "the rate is 0 now" in done.stderr
        assert "it was applied on rank 0, and taken back there on rank 0" in done.stderr
        assert [a.state for a in ranks.process(0).acts().acts][-2:] == ["undone", "done"]
        ranks.process(1).eval("optimizers[0].param_groups[0]['lr'] = 0.01")
        ranks.go_on()
        assert float(ranks.lines(0)[-1][1]) == pytest.approx(0.01)
    finally:
        job.reap()


def test_a_rank_that_does_not_answer_keeps_all_from_it(ddp: Ranks) -> None:
    """It is given up where it had been prepared; nothing is changed, now or later."""
    stop(ddp.job.pid(1))
    try:
        done = ddp.job.run("-t", "all", "--timeout", "20", "act", "clip", "1")
    finally:
        os.kill(ddp.job.pid(1), signal.SIGCONT)
    assert done.returncode == 5
    assert f"error: {ddp.name}: rank 1" in done.stderr
    assert "; it was applied on none of ranks 0-1" in done.stderr
    assert re.search(r"asked 2 ranks: 1 answered.*rank 1", done.stderr), done.stderr
    ddp.go_on()
    for rank in range(2):
        states = [a.state for a in ddp.process(rank).acts().acts if a.name == "clip"]
        assert set(states) <= {"refused", "timed out"}


def test_a_sharded_training_is_told_what_works(tmp_path: Any) -> None:
    """FSDP: no checkpoint and no skipping from outside, each with the way that there is."""
    job = start_job("guarded", "fsdp", ranks=2, cwd=tmp_path)
    try:
        ranks = Ranks(job)
        done = ranks.act("checkpoint", "saved.pt")
        assert (done.returncode, "torch.distributed.checkpoint" in done.stderr) == (4, True)
        done = ranks.act("nan-guard", "skip")
        assert (done.returncode, "clip_grad_norm_" in done.stderr) == (4, True)
        done = ranks.act("nan-guard", "warn")
        assert done.returncode == 0, done.stderr
        ranks.process(1).eval("poison[0] = 1", now=True)
        wait_until(lambda: all(_bad(ranks, rank) for rank in range(2)), "bad steps")
        assert ranks.act("lr", "--scale", "0.5").returncode == 0
    finally:
        job.reap()


def test_ranks_that_have_not_begun_a_step_are_refused_at_once(tmp_path: Any) -> None:
    """They say so, all in one sentence, and do not wait for it; once they train it is applied."""
    job = start_job("guarded", "ddp", "late", ranks=2, cwd=tmp_path)
    try:
        for words in (("lr", "--scale", "0.1"), ("cleanup",)):
            done = job.run("-t", "all", "--timeout", "600", "act", *words)
            assert done.returncode == 4, done.stderr
            told = "ranks 0-1: the training has not begun a step yet: no model has been called"
            assert told in done.stderr
            assert "backtrace` shows where they are" in done.stderr
            assert "asked 2 ranks: 0 answered, ranks 0-1 failed" in done.stderr
        (tmp_path / "go").touch()
        assert Ranks(job).act("lr", "--scale", "0.1").returncode == 0
    finally:
        job.reap()


@pytest.mark.nightly
def test_ranks_that_train_by_themselves_are_told_how_to_ask_them(tmp_path: Any) -> None:
    """Their steps begin no collective of the job: none is the same on all, and one is asked alone.

    What is refused says so, and that nothing was changed.
    """
    job = start_job("guarded", "once", ranks=2, cwd=tmp_path)
    try:
        ranks = Ranks(job)
        words = ("--timeout", "60", "act", "lr", "--scale", "0.1")
        done = job.run("-t", "all", *words, timeout_s=300)
        assert done.returncode == 5, done.stderr  # its time was up
        assert "of which these steps began none" in done.stderr
        alone = f"`probing -t {ranks.name.replace(' ', ':')}/rank:0 {' '.join(words[2:])}`"
        assert f"{alone} asks one by itself" in done.stderr
        one = job.run("-t", "rank:1", *words, timeout_s=300)
        assert one.returncode == 0, one.stderr
        ranks.go_on()
        assert [bool(ranks.steps_with(rank, 0.001)) for rank in range(2)] == [False, True]
    finally:
        job.reap()


def _bad(ranks: Ranks, rank: int) -> list[dict[str, Any]]:
    """The rows of python.nan_steps of a rank, by step."""
    return ranks.job.ask(rank, "FROM python.nan_steps ORDER BY step")
