"""The programs that are run on a device, and what is said to be true of them, fit together."""

from __future__ import annotations

import ast
import json
import sys

import pytest

from probing.diagnosis.doctor.report import ALL_RULES
from tests.gpu.truth import PROGRAMS, VERDICTS, Program, programs, rules, verdict
from tests.zoo.table import GROUPS

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the table is TOML")


def test_the_table_and_the_programs_fit_together() -> None:
    """Each program has an entry, whose group and rules exist, and whose lines are code."""
    known = programs()
    assert {path.stem for path in PROGRAMS.glob("*.py")} == {one.expected.name for one in known}
    assert [f"{one.expected.name}: {p}" for one in known for p in _misfits(one)] == []
    with pytest.raises(SystemExit, match="no program is called nothing; there are podcast, "):
        programs(["nothing"])


@pytest.mark.parametrize(
    ("name", "findings", "what"),
    [
        ("xrays", [("data-wait", "certain", "")], "right first"),
        ("xrays", [("host-bound", "possible", ""), ("data-wait", "likely", "")], "among three"),
        (
            "xrays",
            [("slower-since", "likely", "")] * 3 + [("data-wait", "likely", "")],
            "not found",
        ),
        ("podcast", [("hang", "certain", "held at podcast.py:46")], "right first"),
        ("podcast", [("hang", "certain", "at podcast.py:30")], "not found"),
        ("portraits", [("own-code", "possible", "")], "quiet"),
        ("portraits", [("reseeded", "likely", "")], "false alarm"),
        ("clickrank", [("loss-too-good", "likely", "")], "quiet"),
        ("clickrank", None, "no step in 120 s"),
    ],
)
def test_a_verdict_is_of_rule_place_and_certainty(
    name: str,
    findings: list[tuple[str, str, str]] | None,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The right rule counts by its place, and of a healthy one what is certain or likely."""
    monkeypatch.delenv("DEVICE", raising=False)
    (program,) = programs([name])
    made = [
        {"rule": rule, "certainty": certainty, "summary": summary, "evidence": []}
        for rule, certainty, summary in findings or ()
    ]
    said = {"stdout": json.dumps({"findings": made}), "seconds": 2.0}
    if findings is None:
        said = {"problem": what}
    assert verdict(program, said) == what
    assert (what in VERDICTS) == (findings is not None)
    marked = [rule for rule in rules(program, said) if rule.startswith("!")]
    assert bool(marked) == any(rule in {"slower-since", "reseeded"} for rule, *_ in findings or ())


def test_what_only_a_device_shows_is_not_judged_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that copies nothing has no slow copies."""
    program, other = programs(["satellite", "translate"])
    said = {"stdout": '{"findings": []}', "seconds": 2.0}
    monkeypatch.setenv("DEVICE", "cpu")
    assert (verdict(program, said), verdict(other, said)) == ("not judged", "not found")
    monkeypatch.delenv("DEVICE")
    assert verdict(program, said) == "not found"


def _misfits(program: Program) -> list[str]:
    expected = program.expected
    source = program.path.read_text("utf-8")
    ast.parse(source)
    lines = source.splitlines()
    problems = [f"line {n}" for n in expected.lines if n > len(lines) or not lines[n - 1].strip()]
    named = {*program.right, *expected.also}
    problems += [f"rule {name}" for name in named - {rule.name for rule in ALL_RULES}]
    if expected.group not in GROUPS:
        problems.append(f"group {expected.group}")
    if 'environ.get("DEVICE", "cuda")' not in source:
        problems.append("it does not read DEVICE")
    is_told = expected.looks if expected.is_healthy else expected.fault
    if not is_told or (expected.fault and expected.looks):
        problems.append("what is wrong with it, or what looks so")
    if expected.is_healthy == bool(program.right and expected.lines):
        problems.append("lines and rules of a fault, and only of a fault")
    return problems
