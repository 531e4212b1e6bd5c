"""What an installed plugin adds is there beside what is ours; one that fails harms nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import probing
from probing import plugins
from probing.actions import Run
from probing.cli.questions.library import all_questions, find_question
from probing.diagnosis.doctor.rules import plugged
from probing.errors import ActRefused, PluginFailed
from tests.harness.targets import DEADLINE_S, ROOT, Target, clean_env, wait_until

BROKEN = """
import time
from probing.plugins import Action, LiveTable, Plugin, Question, RecordedTable
from probing.rules import NotLookedAt, Rule

ended = []

def begin(writer):
    writer.add(n=1)
    fails = writer.guarded(lambda: 1 / 0)
    fails()
    return lambda: ended.append(1) or 1 / 0

def fails(*given):
    raise KeyError("no such thing")

def look(facts):
    raise OSError("nothing there")
    yield

def rules():
    made = dict(group="slow", symptom="", evidence="", certainty="possible", gravity=1, fix="",
                next="", look=look)
    return [Rule(name="broken-rule", subject="broken", asks=("SELECT nonsense",), **made),
            Rule(name="stalled", subject="broken", **made)]

plugin = Plugin(
    tables=(
        RecordedTable(name="begun", columns={"n": int}, doc="Begins.", start=begin),
        RecordedTable(name="stumbling", columns={"n": int}, doc="Fails.", each_step=fails),
        RecordedTable(name="steps", columns={"n": int}, doc="Taken."),
        LiveTable(name="dead", columns={"n": int}, doc="Fails.", compute=fails),
        7,
    ),
    actions=(Action(name="fail", doc="Fails.", apply=fails),),
    questions=(Question(name="phases", doc="Ours has that name.", sql="SELECT 1"),),
    rules=rules,
)
"""


def make_plugin(folder: Path, name: str, code: str, value: str = "plugin") -> None:
    """Put a plugin into a folder as an installation does."""
    module = f"plugin_{name}"
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{name} = {module}:{value}\n")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template, installed as its README says, without fetching anything."""
    folder = tmp_path_factory.mktemp("template")
    source = folder / "source"
    shutil.copytree(ROOT / "examples" / "plugin", source)
    argv = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-build-isolation"]
    argv += ["--no-deps", "--disable-pip-version-check", "--target", str(folder / "site")]
    done = subprocess.run([*argv, str(source)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Puts plugins beside those who ask, too."""

    def add(folder: Path) -> None:
        monkeypatch.syspath_prepend(str(folder))
        forget()

    yield add
    forget()


def forget() -> None:
    """Have plugins be looked for anew."""
    plugins._found.cache_clear()
    plugged.plugin_rules.cache_clear()


def start(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch, folder: Path, **env: str
) -> tuple[Target, probing.Process]:
    """Start a training, and wait for a few steps."""
    target = program("plugged", str(folder), **env)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    target.wait_for_step(4)
    process = probing.connect(target.pid)
    wait_until(lambda: answers(process), "an answer")
    return target, process


def answers(process: probing.Process) -> bool:
    """Whether the agent has loaded what answers, which on a busy machine takes its time."""
    try:
        return bool(process.live("sources").rows)
    except probing.ProbingError:
        return False


def sources(process: probing.Process) -> dict[str, dict[str, Any]]:
    """How each source stands."""
    return {row["source"]: row for row in process.query("SELECT * FROM probing.sources").rows()}


@pytest.mark.torch
@pytest.mark.slow
def test_the_template_adds_all_that_a_plugin_can(
    template: Path,
    program: Callable[..., Target],
    installed: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recorded and a live table, an action, a saved question and a rule of the doctor."""
    target, process = start(program, monkeypatch, template)
    installed(template)
    count = "SELECT count(*) AS n FROM machine_load JOIN steps USING (step) WHERE processors > 0"
    assert wait_until(lambda: process.query(count).rows()[0]["n"] > 2, "rows of steps")
    (root, *_) = process.query("SELECT * FROM python.disks").rows()
    assert (root["place"], root["free_bytes"] > 0) == ("/", True)
    question = find_question("load")
    rows = process.query(question.sql.replace("$count", question.parameters["count"])).rows()
    assert set(rows[0]) == {"step", "load", "processors"}
    done = process.act(Run(name="weight-decay", arguments=("value=0.25",)), timeout_s=60)
    assert [(one.before, one.after) for one in done.changes] == [("0", "0.25")]
    for wrong, told in (
        (Run(name="nonsense"), "no plugin has an action nonsense; there are: weight-decay"),
        (Run(name="weight-decay", arguments=("x=1",)), "takes NAME=VALUE of value"),
        (Run(name="weight-decay", arguments=("value=x",)), "could not convert string to float"),
    ):
        with pytest.raises(probing.ProbingError, match=told):
            process.act(wrong, timeout_s=60)
    report = process.doctor(within_s=120)
    seen = {name for one in report.not_looked_at for name in one.rules}
    seen |= {finding.rule for finding in report.findings}
    assert "machine load" in report.healthy or "machine-overloaded" in seen
    kinds = {t.name: t.kind for t in process.tables().tables if t.own is not None}
    assert kinds == {"machine_load": "recorded", "disks": "live"}
    assert sources(process)["machine_load"]["state"] == "on"
    target.kill()
    assert process.query(count).rows()[0]["n"] > 2


@pytest.mark.torch
@pytest.mark.slow
def test_plugins_that_fail_are_switched_off_and_named(
    tmp_path: Path,
    program: Callable[..., Target],
    installed: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is wrong with them, the training trains, and who asks is told."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    make_plugin(folder, "broken", BROKEN)
    make_plugin(folder, "exits", "raise SystemExit(3)")
    make_plugin(folder, "strange", "plugin = 7")
    make_plugin(folder, "missing", "", "nothing")
    _, process = start(program, monkeypatch, folder)
    installed(folder)
    found = sources(process)
    assert found["stumbling"]["state"] == "failed"
    assert "KeyError: 'no such thing'; it is switched off" in found["stumbling"]["note"]
    assert (found["begun"]["state"], found["begun"]["faults"]) == ("on", 1)
    assert process.query("SELECT n FROM begun").rows() == [{"n": 1}]
    why = {
        "plugin exits": "it cannot be used: SystemExit: 3",
        "plugin strange": "it cannot be used: plugin_strange:plugin is a int, and not a",
        "plugin missing": "it cannot be used: AttributeError: module 'plugin_missing' has no",
    }
    for name, note in why.items():
        assert found[name]["state"] == "failed"
        assert found[name]["note"].startswith(note)
    for _ in range(3):
        with pytest.raises(probing.ProbingError, match="plugin broken failed: KeyError"):
            process.query("SELECT * FROM dead")
    with pytest.raises(probing.ProbingError, match="it is switched off"):
        process.query("SELECT * FROM dead")
    with pytest.raises(probing.ProbingError, match="fail failed: KeyError") as refused:
        process.act(Run(name="fail"), timeout_s=60)
    assert refused.value.code == ActRefused.code
    assert refused.value.help == "Its plugin knows whether something was changed by then."
    reasons = {n: one.why for one in process.doctor(within_s=120).not_looked_at for n in one.rules}
    assert reasons["broken-rule"] == "plugin broken failed: OSError: nothing there"
    assert reasons["plugin exits"] == "plugin exits: SystemExit: 3"
    assert find_question("phases").sql != "SELECT 1"


@pytest.mark.anypython
def test_no_process_without_an_agent_imports_a_plugin(tmp_path: Path) -> None:
    """Neither `import probing` nor a table of the script's looks for plugins."""
    make_plugin(tmp_path, "loud", "print('imported')\nraise ImportError")
    code = (
        "import sys, probing\nprobing.table('t', {'n': int}).add(n=1)\n"
        "assert 'importlib.metadata' not in sys.modules and 'probing.plugins' not in sys.modules"
    )
    env = clean_env(tmp_path / "home", PROBING="0")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{code}"],
        env=env, capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.anypython
@pytest.mark.parametrize(("text", "names"), [("0", []), ("off", []), ("1", ["loud"]), ("", None)])
def test_plugins_can_be_switched_off(
    text: str,
    names: list[str] | None,
    tmp_path: Path,
    installed: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PROBING_PLUGINS=0 loads none; what is no value loads them, and the agent says so."""
    make_plugin(tmp_path, "loud", "raise ImportError")
    installed(tmp_path)
    monkeypatch.setenv("PROBING_PLUGINS", text)
    found = [one.name for one in plugins.installed() if one.name == "loud"]
    assert found == (["loud"] if names is None else names)


@pytest.mark.anypython
def test_damaged_metadata_of_a_package_is_told(
    installed: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is raised where plugins are looked for, which is in the training."""

    def fail(**_: str) -> None:
        raise ValueError("damaged")

    installed(tmp_path)
    monkeypatch.setattr("importlib.metadata.entry_points", fail)
    (found,) = plugins.installed()
    assert found.problem == "ValueError: damaged"


@pytest.mark.anypython
def test_a_plugins_question_stands_beside_ours(
    tmp_path: Path, installed: Callable[[Path], None]
) -> None:
    """`query @` lists it."""
    code = (
        "from probing.plugins import Plugin, Question\n"
        "plugin = Plugin(questions=(Question(name='mine', doc='Mine.', sql='SELECT 1'),))\n"
    )
    make_plugin(tmp_path, "asking", code)
    installed(tmp_path)
    assert "mine" in {question.name for question in all_questions()}
    assert find_question("mine").sql == "SELECT 1"


@pytest.mark.anypython
def test_the_error_of_a_plugin_says_whose_it_is() -> None:
    """With what to do."""
    error = PluginFailed("energy", "OSError: no meter")
    assert error.message == "plugin energy failed: OSError: no meter."
    assert "PROBING_PLUGINS=0" in error.help


@pytest.mark.anypython
def test_the_template_passes_its_own_tests(template: Path) -> None:
    """As somebody runs them who has copied it."""
    env = clean_env(template / "home")
    env["PYTHONPATH"] = f"{template}:{env['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=template.parent / "source", env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
