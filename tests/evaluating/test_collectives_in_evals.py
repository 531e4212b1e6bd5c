"""Collectives in code that is sent: refused, before they are entered, where one rank runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import probing  # noqa: E402
from probing.client.running_code import RunningCode  # noqa: E402
from probing.cluster.job.membership import Member  # noqa: E402
from probing.cluster.ranks.gather_evaluations import gather_results  # noqa: E402
from probing.cluster.ranks.question import Asking  # noqa: E402
from probing.errors import NotAnswering, ProbingError  # noqa: E402
from probing.messages.about.act import Prepared  # noqa: E402
from probing.messages.about.eval import Appointment, EvalCommit, EvalJob  # noqa: E402
from probing.messages.common import EvalResult  # noqa: E402
from tests.harness.jobs import Job, start_job  # noqa: E402
from tests.harness.targets import DEADLINE_S, wait_until  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

START = "import torch, torch.distributed as dist\none = torch.ones(1)\n"
COLLECTIVES = {
    "all_reduce": "dist.all_reduce(one)",
    "async": "dist.all_reduce(one, async_op=True)",
    "broadcast": "dist.broadcast(one, 0)",
    "barrier": "dist.barrier()",
    "monitored": "dist.monitored_barrier()",
    "send": "dist.send(one, 1)",
    "isend": "dist.isend(one, 1)",
    "batch": "dist.batch_isend_irecv([dist.P2POp(dist.isend, one, 1)])",
    "objects": "dist.all_gather_object([None, None], 1)",
    "object_list": "dist.broadcast_object_list([1], 0)",
    "new_group": "dist.new_group([0, 1])",
    "functional": "import torch.distributed._functional_collectives as f\n"
    "f.all_reduce(one, 'sum', dist.group.WORLD)",
    "backend": "dist.group.WORLD._get_backend(torch.device('cpu')).allreduce([one])",
    "in_an_operator": "@torch.library.custom_op('mine::sum', mutates_args=())\n"
    "def total(x: torch.Tensor) -> torch.Tensor:\n"
    "    dist.all_reduce(x)\n"
    "    return x.clone()\n"
    "total(one)",
    "forward": "import torch.distributed as dist\nmodel(torch.ones(1, 4))",
    "wrapping": "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))",
}


class Ranks:
    """A job of two ranks of ``guarded.py``."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.wait_for_steps(4)

    def steps(self, rank: int) -> int:
        """How many a rank has made."""
        path = self.job.cwd / f"log-{rank}.txt"
        return path.read_text("ascii").count("\n") if path.exists() else 0

    def wait_for_steps(self, more: int) -> None:
        """Wait until all ranks have made so many more than now."""
        wanted = max(self.steps(rank) for rank in range(2)) + more
        wait_until(lambda: all(self.steps(r) >= wanted for r in range(2)), f"step {wanted}")

    def process(self, rank: int) -> probing.Process:
        """A rank, to be asked."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PROBING_HOME", str(self.job.home))
            return probing.connect(self.job.pid(rank))

    def job_of(self, rank: int) -> EvalJob | None:
        """The eval that a rank has in hand."""
        return next(iter(self.process(rank).jobs().jobs), None)

    def wait_passed(self) -> None:
        """Wait until rank 0 is held at the place that it was told, and rank 1 has come by it.

        A step of rank 0 is written behind the place, one of rank 1 before it is stuck in the next.
        """

        def has_passed() -> bool:
            job = self.job_of(0)
            return job is not None and bool(job.held) and self.steps(1) > self.steps(0)

        wait_until(has_passed, "rank 0 at the place, and rank 1 beyond")


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Two ranks of DistributedDataParallel."""
    job = start_job("guarded", "ddp", ranks=2, cwd=tmp_path_factory.mktemp("ddp"))
    yield Ranks(job)
    job.reap()


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_of_one_rank_is_refused(ddp: Ranks, name: str) -> None:
    """It says what to type instead, and the job goes on as if nothing had been asked."""
    result = ddp.process(0).eval(START + COLLECTIVES[name])
    assert result.error_type == "RuntimeError", result
    assert "was not entered: it waits for all 2 ranks of its process group" in (result.error or "")
    assert "`probing -t all eval`" in (result.error or "")
    ddp.wait_for_steps(3)


ALONE = """
import torch, torch.distributed as dist
with torch.no_grad():
    model(torch.ones(1, 4))
model.module(torch.ones(1, 4)).sum()
torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
vars(torch.distributed.ProcessGroup)["allreduce"].__module__, dist.get_world_size()
"""


def test_what_needs_no_other_rank_is_done(ddp: Ranks) -> None:
    """A forward pass without gradients, one of the module inside, and torch.compile."""
    result = ddp.process(0).eval(ALONE, timeout_s=DEADLINE_S)
    assert result.error is None, result.error
    assert (result.value or "").endswith(", 2)")
    ddp.wait_for_steps(3)


def test_torch_is_as_before_once_the_code_is_done(ddp: Ranks) -> None:
    """No function of torch's is replaced any longer than such code runs."""
    look = "[vars(torch._C._distributed_c10d.Backend)['allreduce'].__class__.__name__]"
    during = ddp.process(0).eval(f"import torch\n{look}")
    assert during.value == "['function']"
    restored = ddp.job.cwd / "restored"
    script = f"""
import pathlib, threading, time, torch
def look():
    while type(vars(torch._C._distributed_c10d.Backend)['allreduce']).__name__ == 'function':
        time.sleep(0.01)
    pathlib.Path({str(restored)!r}).touch()
threading.Thread(target=look, daemon=True).start()
"""
    assert ddp.process(0).eval(script).error is None
    wait_until(restored.exists, "a look without an eval")


SHARDED = {
    "forward": "import torch\nmodel(torch.ones(1, 4))",
    "full_tensor": "next(model.parameters()).full_tensor()",
    "shown": "print(next(model.parameters()).sum().full_tensor())",
}


@pytest.fixture(scope="module")
def fsdp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Two ranks of FSDP2."""
    job = start_job("guarded", "fsdp", ranks=2, cwd=tmp_path_factory.mktemp("fsdp"))
    yield Ranks(job)
    job.reap()


@pytest.mark.parametrize("name", SHARDED)
def test_what_a_sharded_model_needs_of_others_is_refused(fsdp: Ranks, name: str) -> None:
    """A forward pass and a whole tensor are; what lies on this rank can be looked at."""
    result = fsdp.process(0).eval(SHARDED[name])
    assert result.error_type == "RuntimeError", result
    assert "was not entered" in (result.error or "")
    own = fsdp.process(0).eval("next(model.parameters()).to_local().shape")
    assert own.value == "torch.Size([4, 4])", own
    fsdp.wait_for_steps(3)


TOGETHER = """
import torch, torch.distributed as dist
tensor = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(tensor)
print(f'Sum across ranks: {tensor.item()}')
"""


STANDS_STILL = "it makes no progress now"
"""What is said of a rank that a busy machine let do nothing for a second."""


def asked_of_all(ranks: Ranks, *options: str) -> subprocess.CompletedProcess[str]:
    """What the command says of code with a collective, once all ranks make progress."""

    def answered() -> subprocess.CompletedProcess[str] | None:
        done = ranks.job.run("-t", "all", "eval", TOGETHER, "--timeout", "120", *options)
        return None if STANDS_STILL in done.stderr else done

    return wait_until(answered, "ranks that make progress")


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_all_ranks_run_code_at_one_step(kind: str, request: pytest.FixtureRequest) -> None:
    """A collective in it is entered by all of them, and the job goes on."""
    ranks: Ranks = request.getfixturevalue(kind)
    for _ in range(3):
        done = asked_of_all(ranks)
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert done.stdout.strip() == "ranks 0-1:  Sum across ranks: 3"
        assert "by itself" not in done.stderr
    told = asked_of_all(ranks, "--json")
    steps = {result["step"] for result in json.loads(told.stdout)}
    assert len(steps) == 1, told.stdout
    ranks.wait_for_steps(3)


Commit = Callable[[Any, EvalCommit], None]


def told(
    ranks: Ranks, hears: Callable[[Commit, Any, EvalCommit], None]
) -> tuple[dict[Any, EvalResult], str | None]:
    """What code with a collective comes to on all ranks, and why not at one step of all.

    Args:
        hears: How rank 1 is told of a place.
    """
    tell, second = RunningCode.commit_eval, ranks.job.pid(1)

    def commit(process: Any, word: EvalCommit) -> None:
        is_place = word.position is not None and not word.begins
        if is_place and process.status().pid == second:
            hears(tell, process, word)
        else:
            tell(process, word)

    members = [
        Member(rank=rank, host="h", pid=ranks.job.pid(rank), world_size=2,
               endpoint=str(ranks.job.pid(rank)))
        for rank in range(2)
    ]  # fmt: skip

    def answered() -> tuple[Any, Any, str | None] | None:
        found = gather_results(
            Asking(members=tuple(members), timeout_s=DEADLINE_S),
            lambda process, together: process.eval(
                TOGETHER, timeout_s=DEADLINE_S, together=together
            ),
            may_meet=True,
            limit_s=DEADLINE_S,
        )
        return None if STANDS_STILL in (found[2] or "") else found

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROBING_HOME", str(ranks.job.home))
        patch.setattr(RunningCode, "commit_eval", commit)
        results, outcomes, why = wait_until(answered, "ranks that make progress")
    assert all(outcome.error is None for outcome in outcomes), outcomes
    return results, why


def test_a_rank_that_hears_too_late_leaves_no_other_alone_in_a_collective(ddp: Ranks) -> None:
    """Who is held at the place waits, and all go to one further on."""
    places: list[int] = []

    def late(tell: Commit, process: Any, word: EvalCommit) -> None:
        places.append(word.more)
        if len(places) == 1:
            ddp.wait_passed()
        tell(process, word)

    results, why = told(ddp, late)
    assert why is None
    assert [result.output for result in results.values()] == ["Sum across ranks: 3\n"] * 2
    assert len({result.step for result in results.values()}) == 1
    assert places[1] > places[0]
    ddp.wait_for_steps(3)


def test_a_rank_that_never_hears_leaves_no_other_alone_in_a_collective(ddp: Ranks) -> None:
    """Who is held at the place is let go, and each runs it by itself."""

    def lost(*_: object) -> None:
        ddp.wait_passed()
        raise NotAnswering("it", 2)

    results, why = told(ddp, lost)
    assert why is not None
    assert why.startswith("rank 1: ")
    assert all("was not entered" in (result.error or "") for result in results.values()), results
    ddp.wait_for_steps(3)


IN_A_MOMENT = """
import gc
from probing.agent.eval.evaluation import Evaluation
for one in gc.get_objects():
    if type(one) is Evaluation and one._together is not None:
        one.limit_s = 0.1
"""
"""Has the time of code that waits for all ranks be up: not before it is held, however long a busy
machine takes for that."""


def test_a_rank_that_is_not_told_to_begin_goes_on(ddp: Ranks) -> None:
    """It has not run the code, and says so; who asks has gone silent meanwhile."""
    process = ddp.process(0)
    meeting = Appointment(meeting="of one", ranks=2)
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(process.eval, TOGETHER, timeout_s=DEADLINE_S, together=meeting)
        place = wait_until(lambda: (j := ddp.job_of(0)) and j.prepared, "where it is")
        assert isinstance(place, Prepared)
        process.commit_eval(
            EvalCommit(meeting="of one", position=place.position + 1, more=5, waits=True)
        )
        wait_until(lambda: (j := ddp.job_of(0)) and j.held, "it is held")
        assert process.eval(IN_A_MOMENT, now=True).error is None
        with pytest.raises(ProbingError, match="not run and the training goes on") as late:
            running.result(DEADLINE_S)
    assert late.value.code == "eval_timed_out"
    ddp.wait_for_steps(3)


def test_ctrl_c_ends_code_on_all_ranks(ddp: Ranks) -> None:
    """The command ends at once, and the training goes on, long before the limit of the code."""
    endless = "import time\nwhile True: time.sleep(0.01)"
    words = ["-t", "all", "eval", endless, "--timeout", str(4 * DEADLINE_S)]
    command = subprocess.Popen(
        [sys.executable, "-m", "probing", *words],
        env=ddp.job.env,
        cwd=ddp.job.cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def is_running(rank: int) -> bool:
        job = ddp.job_of(rank)
        return job is not None and job.state == "running"

    try:
        wait_until(lambda: is_running(0) and is_running(1), "the code on both")
        command.send_signal(signal.SIGINT)
        assert command.wait(DEADLINE_S / 2) == 130
    finally:
        command.kill()
        command.wait(DEADLINE_S)
    ddp.wait_for_steps(3)
    assert not is_running(0)
    assert not is_running(1)


def test_a_part_of_the_ranks_is_refused(ddp: Ranks) -> None:
    """One of two that is asked as if it were several runs the code alone."""
    done = ddp.job.run("-t", "rank:0,0", "eval", TOGETHER)
    assert done.returncode != 0
    assert "was not entered" in done.stdout + done.stderr
    ddp.wait_for_steps(3)


def test_ranks_that_do_not_train_run_it_by_themselves(tmp_path: Path) -> None:
    """There is no step to meet at: what needs no collective is answered, with a note."""
    job = start_job("ranks", "by_hand", ranks=2, cwd=tmp_path)
    try:
        job.wait_for_output("done")

        def answered() -> subprocess.CompletedProcess[str] | None:
            """The answer of both, once it is long enough ago that they made progress."""
            done = job.run("-t", "all", "eval", "1 + 1", "--timeout", "5")
            is_whole = done.stdout.strip() == "ranks 0-1:  2"
            return done if is_whole and "(rank 0: it makes" in done.stderr else None

        done = wait_until(answered, "an answer of ranks that do not train")
        assert done.returncode == 0
        assert "each has run it by itself, not at one step of all" in done.stderr
        refused = job.run("-t", "all", "eval", TOGETHER)
        assert refused.returncode == 1
        assert "was not entered" in refused.stdout + refused.stderr
    finally:
        job.reap()
