"""`probing PID memory`: where the memory of a real training is; its rules and its formula."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from probing.diagnosis.advice import Usage, advise_on_usage
from probing.diagnosis.memory.activation_theory import bytes_of_layers, transformer_in
from probing.diagnosis.memory.backward_growth import advise_on_growth, growth_of
from tests.harness.targets import ROOT, Target, wait_until

GIB = 2**30


def layer(name: str, given: str, returned: str, cls: str = "Block") -> dict[str, Any]:
    """A row of python.modules as far as the formula reads it."""
    return {
        "module": name,
        "class": cls,
        "model_id": 0,
        "input_shapes": given,
        "output_shapes": returned,
    }


def layers(count: int) -> list[dict[str, Any]]:
    """A transformer's layers, of the sizes that the formula's authors give as an example."""
    rows = []
    for number in range(count):
        wide, narrow = "[1, 1024, 3072]", "[1, 1024, 1024]"
        rows += [
            layer(f"h.{number}", narrow, narrow),
            layer(f"h.{number}.attn", narrow, narrow, "Linear"),
            layer(f"h.{number}.up", narrow, wide, "Linear"),
            layer(f"h.{number}.down", wide, narrow, "Linear"),
        ]
    return rows


@pytest.mark.anypython
def test_the_formula_gives_its_authors_figures() -> None:
    """28 layers with C=1024 D=3072 T=1024 B=1 take 36 MiB each, 1008 in all."""
    found = transformer_in(layers(28))
    assert found is not None
    assert (found.batch, found.length, found.width, found.inner) == (1, 1024, 1024, 3072)
    assert found.layer_bytes == 36 * 2**20
    assert found.all_bytes == 1008 * 2**20
    rows: list[dict[str, Any]] = [
        {"module": "h.1", "bytes": 5},
        {"module": "h.1.up", "bytes": 2},
        {"module": "h.10", "bytes": 9},
        {"module": None, "bytes": 70},
    ]
    measured = bytes_of_layers(found, rows)
    assert (measured["h.1"], measured["h.10"], measured["h.0"]) == (7, 9, 0)


@pytest.mark.anypython
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([], id="nothing seen"),
        pytest.param([layer("0", "[8, 3, 32, 32]", "[8, 16, 32, 32]")], id="images"),
        pytest.param(layers(1), id="a single layer"),
        pytest.param([layer("h.0", "[2, 4, 8]", "[2, 4, 8]")] * 2, id="no perceptron inside"),
    ],
)
def test_no_formula_for_what_is_no_transformer(rows: list[dict[str, Any]]) -> None:
    """Shapes that are not those of a transformer give no figure."""
    assert transformer_in(rows) is None


@pytest.mark.anypython
def test_suggestions_begin_with_the_largest_part() -> None:
    """Each category has its own threshold, and what takes most comes first."""
    sizes = {"activations": 10 * GIB, "optimizer_state": 12 * GIB, "gradients": 2 * GIB}
    usage = Usage(device="cuda:0", total=24 * GIB, categories=sizes)
    assert [one.rule for one in advise_on_usage(usage)] == ["optimizer_state", "activations"]
    assert "50 % of cuda:0" in advise_on_usage(usage)[0].evidence


@pytest.mark.anypython
@pytest.mark.parametrize(
    ("usage", "rules"),
    [
        (Usage(device="cpu", total=None, categories={"activations": GIB}), []),
        (Usage(device="cuda:0", total=10 * GIB, scattered=GIB), []),
        (Usage(device="cuda:0", total=10 * GIB, scattered=GIB + 1), ["fragmented"]),
        (Usage(device="cuda:0", total=10 * GIB, peak=9 * GIB), ["nearly full"]),
        (Usage(device="cuda:0", total=100 * GIB, peak=96 * GIB), ["full"]),
        (
            Usage(
                device="cuda:0", total=10 * GIB, categories={"parameters": 3 * GIB}, quantized=GIB
            ),
            ["parameters"],
        ),
        (Usage(device="cuda:0", total=10 * GIB, categories={"parameters": 3 * GIB}), []),
    ],
)
def test_what_is_suggested_when(usage: Usage, rules: list[str]) -> None:
    """A rule speaks above its threshold only, and none where the room is not known."""
    assert [one.rule for one in advise_on_usage(usage)] == rules


@pytest.fixture(scope="module")
def unprepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The bundled training, started without the agent."""
    cwd = tmp_path_factory.mktemp("unprepared")
    script = str(ROOT / "examples" / "train_gpt.py")
    options = ["--layers", "4", "--dim", "128", "--workers", "0", "--log-every", "1"]
    argv = [sys.executable, script, *options, "--checkpoint-every", "0"]
    target = Target(argv, cwd / "home", cwd)
    target.wait_for_output("step 2 ")
    yield target
    target.reap()


@pytest.fixture(scope="module")
def report(unprepared: Target) -> Mapping[str, Any]:
    """What the command says of it, attached by the way."""
    options = ["memory", "--attach", "--theory", "--format", "json", "-n", "3"]
    done = unprepared.run("-t", str(unprepared.pid), "--timeout", "100", *options, timeout_s=150)
    assert done.returncode == 0, done.stderr
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def at(report: Mapping[str, Any], moment: str) -> dict[str, Any]:
    """The categories of the processor's memory at a moment."""
    (device,) = report["devices"]
    return {row["category"]: row for row in device["categories"][moment]}


@pytest.mark.torch
def test_an_unprepared_training_shows_where_its_memory_is(report: Mapping[str, Any]) -> None:
    """Both moments are seen: gradients at a step's end, activations before the backward pass."""
    now, before = at(report, "now"), at(report, "before_backward")
    assert now["parameters"]["bytes"] == now["gradients"]["bytes"] > 0
    assert now["optimizer_state"]["bytes"] > 2 * now["parameters"]["bytes"]
    assert before["gradients"]["bytes"] == now["activations"]["bytes"] == 0
    assert before["activations"]["bytes"] > before["parameters"]["bytes"]
    for rows in (now, before):
        total = sum(row["bytes"] for row in rows.values())
        assert rows["other"]["bytes"] < 0.05 * total


@pytest.mark.torch
def test_what_a_backward_pass_adds_is_told(report: Mapping[str, Any]) -> None:
    """By the resident set of a CPU, beside the gradients, and not judged."""
    (growth,) = report["backward"]
    assert growth["device"] == "cpu"
    assert growth["passes"] >= 1
    assert growth["before_bytes"] > at(report, "before_backward")["activations"]["bytes"]
    assert growth["gradients_bytes"] == at(report, "now")["gradients"]["bytes"]
    assert growth["is_excessive"] is None


@pytest.mark.parametrize(
    ("growth", "is_exact", "excessive"),
    [(480, True, False), (-200, True, False), (5500, True, True), (5500, False, None)],
)
def test_a_backward_pass_adds_as_much_as_its_gradients_take(
    growth: int, *, is_exact: bool, excessive: bool | None
) -> None:
    """More than that is excessive, and comes with advice; the resident set is not judged."""
    mib = 1 << 20
    row = {"device": "cuda:0", "passes": 40, "before": 2450 * mib, "is_exact": is_exact}
    row |= {"growth": growth * mib, "most": growth * mib}
    found = growth_of([row], {"cuda:0": 490 * mib})
    assert [one.is_excessive for one in found] == [excessive]
    assert [one.rule for one in advise_on_growth(found)] == ["backward"] * bool(excessive)


@pytest.mark.torch
def test_activations_by_module_sum_to_the_category(report: Mapping[str, Any]) -> None:
    """What each module saved adds up to the category, and each layer saved the same."""
    rows = report["activations"]
    assert (
        sum(row["bytes"] for row in rows) == at(report, "before_backward")["activations"]["bytes"]
    )
    inside = [row for row in rows if (row["module"] or "").startswith("blocks.")]
    sums = {
        number: sum(row["bytes"] for row in inside if row["module"].startswith(f"blocks.{number}."))
        for number in range(4)
    }
    assert len(set(sums.values())) == 1
    assert report["transformer"]["layers"] == [f"blocks.{number}" for number in range(4)]
    assert report["transformer"]["inner"] == 4 * report["transformer"]["width"]
    assert [row["category"] for row in report["tensors"]] == ["activations"] * 3


@pytest.mark.torch
def test_the_screen_shows_what_the_tables_hold(
    unprepared: Target, report: Mapping[str, Any]
) -> None:
    """The command's screen has the process, the total and the peak; no segment without a device."""
    assert report["segments"] == []
    done = unprepared.run("-t", str(unprepared.pid), "--timeout", "100", "memory", timeout_s=150)
    assert done.returncode == 0, done.stderr
    words = {line.split(maxsplit=1)[0] for line in done.stdout.splitlines() if line.strip()}
    assert {"process", "node", "peak", "backward", "parameters", "activations", "TOTAL"} <= words


@pytest.mark.torch
def test_a_process_that_makes_no_step_is_shown_as_it_is(program: Callable[..., Target]) -> None:
    """What it holds is told apart all the same, and the answer says that no step was seen."""
    target = program("holding")
    target.wait_for_output("ready")
    wait_until(target.find_folder, "a run folder")
    done = target.run(str(target.pid), "memory", "--format", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["notes"][0].startswith("the training has ended no step yet: shown is what there")
    (device,) = answer["devices"]
    assert list(device["categories"]) == ["now"]
    sizes = {row["category"]: row["bytes"] for row in device["categories"]["now"]}
    assert sizes["parameters"] == sizes["gradients"] == 4 * 1000 * 100
    assert sizes["activations"] > 0


@pytest.mark.torch
def test_a_training_by_functions_shows_its_parameters(program: Callable[..., Target]) -> None:
    """Its steps end inside of a function that torch transforms: it is looked at from beside it."""
    target = program("functional")
    target.wait_for_output("ready")
    done = target.run(str(target.pid), "memory", "--format", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    (device,) = answer["devices"]
    sizes = {row["category"]: row["bytes"] for row in device["categories"]["now"]}
    (learnt,) = re.findall(r"^bytes (\d+)$", target.output, re.MULTILINE)
    assert sizes["parameters"] == int(learnt)
    assert any("torch.func" in note for note in answer["notes"])
