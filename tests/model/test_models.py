"""The live tables of models and optimizers, asked of real trainings of many kinds."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import probing
from probing.client.base import Process
from probing.client.transports import ByAddress
from probing.errors import NotAnswering
from probing.reach.address import Address
from probing.reach.transport import ask as ask_agent
from tests.harness.targets import DEADLINE_S, Target, wait_until

pytestmark = pytest.mark.torch

Row = dict[str, Any]
HOOKS = (
    "import torch\nsum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())"
)


class Asked:
    """A training of one kind, and what it says of itself."""

    def __init__(self, target: Target, process: Process) -> None:
        self.target, self.process = target, process

    def rows(self, table: str, *, wait_s: float | None = DEADLINE_S) -> list[Row]:
        """The rows of a live table."""
        live = self.process.live(table, wait_s=wait_s, patient=True)
        return live.dicts()

    def modules(self) -> dict[str, Row]:
        """The observed rows of python.modules by name; of a wrapper and what it wraps, the last."""
        return {row["module"]: row for row in self.rows("modules")}

    def oracle(self) -> Row:
        """What torch says of the model."""
        (line,) = [x for x in self.target.output.splitlines() if x.startswith("oracle ")]
        found: Row = json.loads(line.removeprefix("oracle "))
        return found

    def is_unharmed(self) -> bool:
        """Whether the training goes on, with not one hook left in its model."""
        self.target.wait_for_step(self.target.step() + 3)
        return self.process.eval(HOOKS).value == "0"


@pytest.fixture
def ask(program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Asked]:
    """Starts a training of ``tests/programs/torch_models.py`` and hands over what asks it."""

    def start(*args: str) -> Asked:
        target = program("torch_models", *args)
        target.wait_for_output("done" if len(args) > 1 else "ready")
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        return Asked(target, probing.connect(target.pid))

    return start


Ask = Callable[..., Asked]


@pytest.mark.parametrize("kind", ["gpt", "cnn", "lstm", "odd"])
def test_parameters_are_those_of_torch(kind: str, ask: Ask) -> None:
    """A model's parameters are `sum(p.numel())`, tied and shared ones once, also per module."""
    asked = ask(kind)
    wanted = asked.oracle()["parameters"]
    (model,) = asked.rows("models")
    assert model["parameters"] == wanted
    rows = asked.rows("modules", wait_s=None)
    assert rows[0]["parameters"] == wanted
    code = "[sum(p.numel() for p in m.parameters()) for m in model.modules()]"
    assert str([row["parameters"] for row in rows]) == asked.process.eval(code).value


@pytest.mark.parametrize("kind", ["gpt", "cnn", "lstm"])
def test_flops_are_those_of_the_flop_counter(kind: str, ask: Ask) -> None:
    """Each layer's FLOPs by formula are what torch's FlopCounterMode counts in its call."""
    asked = ask(kind)
    rows = asked.modules()
    compared = {"Linear", "Conv2d", "ConvTranspose2d", "LSTM", "GRU", "Embedding"}
    layers = {name: row["flops"] for name, row in rows.items() if row["class"] in compared}
    counted = asked.oracle()["flops"]
    root = next(iter(rows))
    by_torch = {name: counted.get(f"{root}.{name}", 0) for name in layers}
    assert layers == by_torch
    assert len(layers) >= 4
    assert sum(layers.values()) > 0
    assert asked.is_unharmed()


def test_a_sum_over_own_code_is_a_lower_bound(ask: Ask) -> None:
    """A module's FLOPs are those inside it and of its own functions; its own code may add some."""
    asked = ask("gpt")
    rows = asked.modules()
    attention = rows["blocks.0.attn"]
    inside = rows["blocks.0.attn.qkv"]["flops"] + rows["blocks.0.attn.out"]["flops"]
    by_torch = asked.oracle()["flops"]["GPT.blocks.0.attn"]
    assert (attention["flops"], attention["flops_is_lower_bound"]) == (by_torch, True)
    assert rows["blocks.0.attn.qkv"]["flops_is_lower_bound"] is False
    assert by_torch - inside == 2 * 2 * 4 * 16 * 16 * 32, "the attention itself"
    assert rows["blocks"]["flops"] == rows["blocks.0"]["flops"] + rows["blocks.1"]["flops"]
    assert rows["blocks.0.mlp.1"]["flops"] is None, "no formula is known for GELU"


def test_shapes_are_those_of_the_call(ask: Ask) -> None:
    """Named inputs, dictionaries, named tuples and dataclasses show the tensors in them.

    A call of the root that fails, or copies modules, is none the worse for being observed.
    """
    asked = ask("odd")
    rows = asked.modules()
    root = rows["Odd"]
    assert root["input_shapes"] == "0.x=[3, 4], 0.scale=[1]"
    assert root["output_shapes"] == "logits=[3, 4], extra.0=[3, 2]"
    assert (root["input_bytes"], root["output_bytes"]) == (4 * (12 + 1), 4 * (12 + 6))
    split = rows["split"]
    assert split["input_shapes"] == "[3, 4], scale=[1]"
    assert split["output_shapes"] == "left=[3, 4], right.half=[3, 2]"
    assert (split["input_dtypes"], split["calls"], split["flops"]) == ("float32", 1, None)
    assert asked.is_unharmed()


def test_a_shared_module_counts_each_call(ask: Ask) -> None:
    """A module called twice shows both calls, and each caller gets the FLOPs of its own."""
    rows = ask("odd").modules()
    one_call = 2 * 3 * 4 * 4
    assert (rows["shared"]["calls"], rows["shared"]["flops"]) == (2, 2 * one_call)
    again = rows["again"]
    assert (again["flops"], again["flops_is_lower_bound"]) == (one_call, False)
    assert rows["Odd"]["flops"] == 2 * one_call


def test_what_was_not_called_is_null(ask: Ask) -> None:
    """A module that was not called, or ended by an exception, has no shapes, and not zeros."""
    asked = ask("odd")
    rows = asked.modules()
    for name in ("unused", "fails"):
        assert rows[name]["parameters"] > 0
        observed = ("calls", "input_shapes", "output_shapes", "output_bytes", "flops")
        assert [rows[name][column] for column in observed] == [None] * 5
    assert rows["unused"]["trainable"] == 0
    (model,) = asked.rows("models")
    assert model["trainable_share"] == model["trainable"] / model["parameters"] < 1
    assert (model["buffers"], model["buffer_bytes"]) == (5, 40)


def test_wrappers_leave_no_trace_in_names(ask: Ask) -> None:
    """A model in DDP is one root with its wrapper beside it; the modules keep their names."""
    asked = ask("wrapped")
    (model,) = asked.rows("models")
    assert (model["class"], model["wrappers"]) == ("Net", "DistributedDataParallel")
    assert (model["modules"], model["compiled"]) == (3, False)
    rows = asked.rows("modules")
    names = [(row["module"], row["class"]) for row in rows]
    assert names == [
        ("DistributedDataParallel", "DistributedDataParallel"),
        ("Net", "Net"),
        ("first", "Linear"),
        ("last", "Linear"),
    ]
    assert {row["root"] for row in rows} == {"Net"}
    assert [row["output_shapes"] for row in rows] == ["[3, 2]", "[3, 2]", "[3, 8]", "[3, 2]"]
    assert rows[0]["flops"] == rows[2]["flops"] + rows[3]["flops"] == 2 * 3 * (4 * 8 + 8 * 2)
    assert asked.is_unharmed()


def test_a_compiled_model_is_not_looked_into(ask: Ask) -> None:
    """Inside torch.compile shapes are NULL, that is said, and nothing is compiled again."""
    asked = ask("compiled")
    (model,) = asked.rows("models")
    assert (model["class"], model["wrappers"]) == ("Net", "OptimizedModule")
    assert model["compiled"] is True
    live = asked.process.live("modules", wait_s=DEADLINE_S, patient=True)
    rows = live.dicts()
    assert [row["compiled"] for row in rows] == [True] * 4
    assert {(row["output_shapes"], row["flops"]) for row in rows} == {(None, None)}
    assert "torch.compile" in (live.note or "")
    first, *_ = asked.rows("compilations")
    assert (first["function"], first["attempt"], first["failure"]) == ("forward", 0, None)
    assert first["file"].endswith("torch_models.py")
    assert first["operations"] > 0
    assert 0 < first["duration_s"] < DEADLINE_S
    assert asked.is_unharmed()


def test_beside_compiled_parts_the_rest_is_observed(ask: Ask) -> None:
    """In a model with compiled parts only those are left out, and sums become lower bounds."""
    asked = ask("partly_compiled")
    rows = asked.modules()
    assert rows["1"]["output_shapes"] == "[3, 2]"
    assert rows["0"]["output_shapes"] == "[3, 2]"
    assert (rows["0"]["compiled"], rows["0.first"]["compiled"]) == (False, True)
    assert rows["0.last"]["compiled"] is True
    assert (rows["0.first"]["calls"], rows["0.last"]["calls"]) == (None, None)
    root = rows["Sequential"]
    assert (root["flops"], root["flops_is_lower_bound"]) == (rows["1"]["flops"], True)
    notes = {row["source"]: str(row["note"]) for row in asked.rows("sources")}
    # One of them is the wrapper, which has the name of what it wraps.
    assert f"3 of {len(rows) + 1} modules go through torch.compile" in notes["modules"]
    assert asked.is_unharmed()


def test_a_scripted_module_is_one_call(ask: Ask) -> None:
    """What torch.jit has compiled is one call; what is beside it is watched by layers."""
    asked = ask("scripted")
    rows = asked.modules()
    assert rows["1"]["output_shapes"] == "[3, 2]"
    assert rows["1"]["flops"] == 2 * 3 * 2 * 2
    assert rows["Sequential"]["output_shapes"] == "[3, 2]"
    states = {row["source"]: row["state"] for row in asked.rows("sources")}
    assert states["modules"] == "on"
    assert asked.is_unharmed()


def test_a_broken_graph_is_left_alone(ask: Ask) -> None:
    """A model called between the graphs of a compiled function is not compiled again."""
    asked = ask("broken_graph")
    live = asked.process.live("modules", wait_s=0.5, patient=True)
    assert live.columns
    asked.target.wait_for_step(asked.target.step() + 5)
    assert asked.target.process.poll() is None, asked.target.output


def test_a_layer_that_avoids_hooks_gets_none(ask: Ask) -> None:
    """A transformer layer in evaluation computes bit by bit the same while it is looked for."""
    asked = ask("fast_path")
    rows = asked.modules()
    assert rows["1"]["output_shapes"] == "[2, 5, 3]"
    assert rows["0"]["output_shapes"] is None
    assert rows["Sequential"]["training"] is False
    assert asked.is_unharmed()


def test_a_training_that_stands_still_gives_null_and_says_so(ask: Ask) -> None:
    """Where no call comes, everything but the shapes is there, with a sentence about them."""
    asked = ask("gpt", "2")
    live = asked.process.live("modules", wait_s=DEADLINE_S)
    rows = live.dicts()
    assert live.note == (
        "no model was called, for the training makes no progress; shapes and FLOPs are not known"
    )
    assert rows[0]["parameters"] == asked.oracle()["parameters"]
    assert {row["output_shapes"] for row in rows} == {None}
    done = asked.target.run(str(asked.target.pid), "summary")
    assert done.returncode == 0
    assert f"note: {live.note}" in done.stderr
    assert "forward" not in done.stdout


def test_a_process_that_hung_before_the_agent_came_shows_what_it_holds(
    program: Callable[..., Target],
) -> None:
    """Attached to too late for any call, the agent shows models and optimizers, with a note."""
    target = program("torch_models", "gpt", "2", PROBING="0")
    target.wait_for_output("done")
    pid = str(target.pid)
    done = target.run(pid, "summary", "--attach", "--depth", "0")
    assert done.returncode == 0, done.stderr
    assert "no module has been called since the agent came" in done.stderr
    assert done.stdout.startswith("GPT: training mode, float32, cpu\n")
    rows = target.run(
        pid, "query", "--format=jsonl", "SELECT optimizer, momentum FROM python.optimizers"
    )
    assert rows.stdout == '{"optimizer":"SGD","momentum":0.9}\n'


def test_waiting_has_an_end(ask: Ask) -> None:
    """A patient question to a training that stands still ends at its own limit."""
    live = ask("gpt", "2").process.live("modules", wait_s=0.2, patient=True)
    assert (live.note or "").startswith("no model was called within 0.2 s")


def test_static_columns_wait_for_nothing(ask: Ask) -> None:
    """A query that names no observed column does not ask the training to show anything."""
    asked = ask("gpt", "2")
    rows = asked.process.query("SELECT module, parameters FROM python.modules").to_pylist()
    assert len(rows) > 10
    assert asked.process.notes() == []
    asked.process.query("SELECT module, flops FROM python.modules").to_pylist()
    assert "shapes and FLOPs are not known" in asked.process.notes()[0]


def test_the_tables_join_the_trace(ask: Ask) -> None:
    """Modules and their recorded calls find each other by name, class and root."""
    asked = ask("gpt")
    rows = asked.process.query(
        "SELECT m.module, m.flops, count(*) AS calls FROM python.modules AS m"
        " JOIN python.torch_trace AS t USING (module, class, root)"
        " WHERE t.stage = 'forward' AND m.flops > 0 GROUP BY ALL"
    ).to_pylist()
    assert {"GPT", "blocks.0.attn.qkv", "head"} <= {row["module"] for row in rows}
    assert all(row["calls"] > 0 for row in rows)


def test_the_sql_worker_can_ask_for_shapes(ask: Ask) -> None:
    """A query that the agent's own SQL worker runs gets observed columns, too."""
    asked = ask("gpt")
    socket = ByAddress(Address(path=asked.target.folder.socket))
    through_agent = Process("agent", socket, DEADLINE_S)
    rows = through_agent.query("SELECT output_shapes FROM python.modules WHERE module = 'head'")
    assert rows.to_pylist() == [{"output_shapes": "[4, 16, 14]"}]


def test_optimizers_show_their_groups(training: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each parameter group has its rates, and the sizes that its tensors add up to."""
    monkeypatch.setenv("PROBING_HOME", str(training.home))
    process = probing.connect(training.pid)
    rows = process.query("SELECT * FROM python.optimizers ORDER BY param_group").to_pylist()
    assert [(row["optimizer"], row["weight_decay"]) for row in rows] == [
        ("AdamW", 0.1),
        ("AdamW", 0.0),
    ]
    code = (
        "[(len(g['params']), sum(p.numel() for p in g['params']),"
        " sum(v.numel() * v.element_size() for p in g['params']"
        " for v in optimizer.state[p].values())) for g in optimizer.param_groups]"
    )
    seen = [(row["tensors"], row["parameters"], row["state_bytes"]) for row in rows]
    assert str(seen) == process.eval(code).value
    assert {row["betas"] for row in rows} == {"0.9, 0.95"}
    assert {(row["momentum"], row["clip"]) for row in rows} == {(None, 1.0)}  # of the script
    assert all(0 < row["lr"] <= 1e-3 for row in rows)


def test_the_summary_shows_the_levels_asked_for(training: Target) -> None:
    """The table has a line per module down to the depth, and sums over all of them."""
    pid = str(training.pid)
    done = training.run(pid, "summary", "--depth", "1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("GPT: training mode, float32, cpu, seen in step ")
    shown = [line.split()[0] for line in lines[4:] if line.startswith("  ")]
    assert shown == ["tokens", "positions", "blocks", "norm", "head"]
    assert "… 20 modules below; --depth N shows more levels" in lines
    assert lines[-4].startswith("parameters 103,936, 406.0 KiB; trainable 103,936, 100 %")
    deeper = training.run(pid, "summary", "--depth", "9", "--format", "json")
    (model,) = json.loads(deeper.stdout)["models"]
    assert len(model["modules_shown"]) == model["modules"] == 26
    written = training.run(pid, "summary", "--format", "markdown").stdout
    assert "| blocks.1.attn | Attention | 16,640 | ≥ " in written


def test_several_endpoints_are_summed_up_one_by_one(training: Target) -> None:
    """With several endpoints each summary has its heading, and one failure fails the whole."""
    pid = str(training.pid)
    done = training.run("-t", pid, "-t", "999999999", "summary", "--depth", "0")
    assert done.returncode == 3
    assert done.stdout.startswith(f"== {pid} ==\nGPT: ")
    assert "999999999" in done.stderr


def test_two_who_ask_at_once_share_a_look(ask: Ask) -> None:
    """Concurrent questions all get shapes, and leave no hook behind."""
    asked = ask("gpt")
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda _: asked.modules(), range(6)))
    assert all(rows["head"]["output_shapes"] == "[4, 16, 14]" for rows in answers)
    assert asked.is_unharmed()


def test_a_client_that_goes_away_takes_its_question_along(ask: Ask) -> None:
    """A question whose client has gone ends, and the agent keeps no thread for it."""
    asked = ask("gpt", "2")
    with pytest.raises(probing.ProbingError, match="did not answer"):
        ask_agent(
            Address(path=asked.target.folder.socket),
            "live",
            timeout_s=0.3,
            table="modules",
            flags=("patient",),
            times={"wait_s": 3000.0},
        )
    names = "import threading\n[t.name for t in threading.enumerate() if t.name == 'probing-live']"

    def is_over() -> bool:
        with contextlib.suppress(NotAnswering):  # while it loads its server on a busy machine
            return asked.process.eval(names).value == "[]"
        return False

    wait_until(is_over, "the end of the question")


def test_without_torch_there_is_no_model(program: Callable[..., Target]) -> None:
    """A process that has not called any model says so, and that is no failure."""
    target = program("idle", PROBING="all")
    target.wait_for_agent()
    done = target.run(str(target.pid), "summary")
    assert (done.returncode, done.stdout) == (0, "no model has been seen\n")
    assert "no module has been called since the agent came" in done.stderr


def test_a_process_that_has_ended_has_no_model_any_more(ask: Ask) -> None:
    """The summary of an ended process is refused with what still works."""
    target = ask("gpt", "2").target
    target.kill()
    done = target.run(str(target.pid), "summary")
    assert done.returncode == 3
    assert "has ended, so" in done.stderr
    assert "Traceback" not in done.stderr
