"""The table of the zoo and its programs fit together, and the runner leaves nothing behind."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import re
import signal
import sys
import tokenize

import pytest

from probing.diagnosis.doctor.report import ALL_RULES
from tests.harness.targets import DEADLINE_S
from tests.zoo import table as zoo_table
from tests.zoo.__main__ import Options, look_at
from tests.zoo.judge import judge, right_rules, table
from tests.zoo.table import GROUPS, PROGRAMS, STARTS, Expectation, expectations

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the table is TOML")

_TELLING = re.compile(r"\b(bug|fault|wrong|broken|leak|hang|dead ?lock|fixme|todo)", re.IGNORECASE)


def test_each_program_has_an_entry_and_each_entry_a_program() -> None:
    """Nothing is in the folder that the table does not know, nor the other way round."""
    programs = {path.stem for path in PROGRAMS.glob("*.py")}
    assert programs == {expected.name for expected in expectations()}


def test_entries_fit_their_programs() -> None:
    """Each program compiles, and has the lines, functions and classes that its entry points at."""
    problems = [
        f"{expected.name}: {problem}"
        for expected in expectations()
        for problem in _misfits(expected)
    ]
    assert not problems


def test_each_fault_has_right_findings_and_each_is_a_rule() -> None:
    """What is right is said of every program with a fault, in names of rules."""
    rules = right_rules()
    assert set(rules) == {one.name for one in expectations() if not one.is_healthy}
    known = {rule.name for rule in ALL_RULES}
    assert {name for names in rules.values() for name in names} <= known


@pytest.mark.parametrize(
    ("name", "findings", "place", "alarms"),
    [
        ("lm_10", [("loss-flat", "possible", ""), ("loss-not-finite", "certain", "")], 2, ()),
        ("lm_10", [("loss-flat", "likely", "")], None, ()),
        ("lm_18", [("loss-flat", "possible", "")], None, ()),
        ("lm_18", [("loss-flat", "likely", "")], None, ("loss-flat",)),
        ("vision_03", [("hang", "likely", "Rank 2 has not come; ranks 0-1 wait")], 1, ()),
        ("vision_03", [("hang", "likely", "Rank 1 has not come; ranks 0, 2 wait")], None, ()),
        ("lm_03", [("hang", "certain", "waits at lm_03.py:36 in encode")], 1, ()),
        ("lm_03", [("hang", "certain", "waits somewhere")], None, ()),
    ],
)
def test_a_judgement_is_of_rule_place_and_certainty(
    name: str, findings: list[tuple[str, str, str]], place: int | None, alarms: tuple[str, ...]
) -> None:
    """The right rule counts by its place, what hangs by who is named, and alarms of the healthy."""
    made = [{"rule": r, "certainty": c, "summary": s, "evidence": []} for r, c, s in findings]
    said = {"stdout": json.dumps({"findings": made}), "seconds": 2.0}
    (expected,) = expectations([name])
    found = judge(expected, said, right_rules().get(name, []))
    assert (found.place, found.alarms) == (place, alarms)
    assert "with a fault" in table([found]) or expected.is_healthy


def test_no_program_tells_its_fault() -> None:
    """Names are neutral, and no comment speaks of a fault."""
    told = []
    for path in PROGRAMS.glob("*.py"):
        with path.open("rb") as file:
            comments = [
                t.string for t in tokenize.tokenize(file.readline) if t.type == tokenize.COMMENT
            ]
        told += [f"{path.name}: {comment}" for comment in comments if _TELLING.search(comment)]
        if not re.fullmatch(r"[a-z]+_\d\d", path.stem):
            told.append(path.name)
    assert not told


def test_the_zoo_has_enough_of_each_kind() -> None:
    """Sixty with faults of all groups, some as ranks, dead or unprepared, and thirty healthy."""
    faulty = [expected for expected in expectations() if not expected.is_healthy]
    assert len(faulty) >= 60
    assert len(expectations()) - len(faulty) >= 30
    assert {expected.group for expected in faulty} == set(GROUPS) - {"healthy"}
    assert sum(expected.world > 1 for expected in faulty) >= 12
    assert sum(expected.start == "dead" for expected in faulty) >= 6
    assert sum(expected.start == "late" for expected in faulty) >= 4


@pytest.mark.parametrize(
    ("start", "signal_name"), [("plain", ""), ("late", ""), ("dead", "SIGKILL"), ("dead", "")]
)
def test_runner_asks_at_the_right_moment_and_ends_all(
    start: str, signal_name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is run when the step is there, dead programs are dead, and all end."""
    monkeypatch.setattr(zoo_table, "PROGRAMS", tmp_path)
    ends = start == "dead" and not signal_name
    (tmp_path / "some_01.py").write_text(
        f"import time\nfor step in range(9):\n    print('step', step, flush=True)\n"
        f"time.sleep({0 if ends else 600})\n"
    )
    expected = Expectation(
        name="some_01",
        group="slow",
        start=start,
        look_after_step=5,
        wait_s=0,
        also=(),
        ranks=2,
        signal=signal_name,
    )
    tell = f"'{sys.executable}' -c 'import sys; print(sys.argv[1:])' PID"
    options = Options(
        command=tell,
        attach=tell,
        settle_s=0,
        timeout_s=DEADLINE_S,
        deadline_s=DEADLINE_S,
        output=tmp_path / "out",
    )
    assert "exit code 0" in look_at(expected, options)
    said = json.loads((tmp_path / "out" / "some_01" / "said.json").read_text())
    assert said["stdout"].strip() == "['-t', 'all']"
    assert said["step_before"] >= 5
    codes = {"plain": None, "late": None, "dead": -9 if signal_name else 0}
    assert said["training_exit_codes"] == [codes[start]] * 2
    assert (tmp_path / "out" / "some_01" / "attach.json").exists() == (start == "late")
    for pid in said["pids"]:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_ranks_that_a_program_starts_itself_are_asked_about_together(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process is started, and all that it has started are asked."""
    monkeypatch.setattr(zoo_table, "PROGRAMS", tmp_path)
    (tmp_path / "some_01.py").write_text(
        "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"
    )
    expected = Expectation(
        name="some_01",
        group="slow",
        start="plain",
        look_after_step=1,
        wait_s=0,
        also=(),
        spawns=2,
    )
    tell = f"'{sys.executable}' -c 'import sys; print(sys.argv[1:])' PID"
    options = Options(
        command=tell,
        attach="",
        settle_s=0,
        timeout_s=DEADLINE_S,
        deadline_s=DEADLINE_S,
        output=tmp_path / "out",
    )
    look_at(expected, options)
    said = json.loads((tmp_path / "out" / "some_01" / "said.json").read_text())
    assert (len(said["pids"]), said["stdout"].strip()) == (1, "['-t', 'all']")


def _misfits(expected: Expectation) -> list[str]:
    source = expected.path.read_text()
    tree = ast.parse(source)
    lines = source.splitlines()
    problems = [f"line {n}" for n in expected.lines if n > len(lines) or not lines[n - 1].strip()]
    defined = {
        node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    functions = str(expected.place.get("function", "")).replace(" / ", ".").split(".")
    problems += [f"function {name}" for name in functions if name and name not in defined]
    if not 40 <= len(lines) <= 120:
        problems.append(f"{len(lines)} lines")
    if expected.group not in GROUPS or expected.start not in STARTS:
        problems.append("group or start")
    if expected.signal and expected.signal not in signal.Signals.__members__:
        problems.append("signal")
    if not 1 <= expected.world <= 4 or expected.place.get("rank", 0) >= expected.world:
        problems.append("ranks")
    if (expected.start == "dead") != (expected.exit is not None):
        problems.append("an exit status, and only for what is dead")
    return problems + _wanting(expected)


def _wanting(expected: Expectation) -> list[str]:
    if expected.is_healthy:
        return [] if expected.looks and not expected.fault else ["why it looks suspicious"]
    said = expected.fault and expected.since_step is not None
    shown = expected.lines or expected.signal
    return [] if said and shown and not expected.looks else ["a fault, its step and its lines"]
