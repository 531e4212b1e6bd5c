"""Collectives in code that is sent: refused, before they are entered, where one rank runs it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import probing  # noqa: E402
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


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_all_ranks_run_code_at_one_step(kind: str, request: pytest.FixtureRequest) -> None:
    """A collective in it is entered by all of them, and the job goes on."""
    ranks: Ranks = request.getfixturevalue(kind)
    for _ in range(3):
        done = ranks.job.run("-t", "all", "eval", TOGETHER, "--timeout", "120")
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert done.stdout.strip() == "ranks 0-1:  Sum across ranks: 3"
        assert "by itself" not in done.stderr
    told = ranks.job.run("-t", "all", "eval", TOGETHER, "--json", "--timeout", "120")
    steps = {result["step"] for result in json.loads(told.stdout)}
    assert len(steps) == 1, told.stdout
    ranks.wait_for_steps(3)


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
