"""Real notebooks in real kernels, beside a real training.

nbclient, ipykernel and what reads answers there stand in tests/notebooks.txt; tests/run.sh installs
them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import probing
from probing.diagnosis.hang.seen.doings import doing_of, is_at_prompt
from tests.harness.late import late
from tests.harness.targets import DEADLINE_S, ROOT, Target, clean_env, run_command, wait_until

nbformat = late("nbformat", reason="nbclient is of tests/notebooks.txt")
manager = late("jupyter_client.manager", reason="nbclient is of tests/notebooks.txt")
pytestmark = pytest.mark.torch

PAGE = ROOT / "docs" / "how-to" / "notebooks.ipynb"


class Run:
    """A notebook that was run.

    Attributes:
        failed: What went wrong in it, if anything did.
    """

    def __init__(self, book: Any, failed: str) -> None:
        self.failed = failed
        self._cells = [cell for cell in book.cells if cell.cell_type == "code"]

    def shown(self, code: str, kind: str = "text/html") -> str:
        """What a cell has shown: the one that is this code, or else the first that contains it."""
        fitting = [cell for cell in self._cells if code in cell.source]
        cell = next((cell for cell in fitting if cell.source == code), fitting[0])
        return "".join(
            str(out.get("data", {}).get(kind, "") if kind != "stream" else out.get("text", ""))
            for out in cell.outputs
        )


def run(book: Any, target: Target, folder: Path) -> Run:
    """Run a notebook in a kernel of its own, that lies in no folder of the user's."""
    given, done = folder / "given.ipynb", folder / "done.ipynb"
    nbformat.write(book, given)
    places = {f"JUPYTER_{name}_DIR": str(folder / "jupyter") for name in ("RUNTIME", "CONFIG")}
    client = "from nbclient.cli import main; main()"
    program = subprocess.run(
        [sys.executable, "-c", client, str(given),
         f"--output={done}", "--timeout=120", "--allow-errors"],
        env={**target.env, **places, "IPYTHONDIR": str(folder / "ipython")},
        capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False,
    )  # fmt: skip
    assert program.returncode == 0, program.stderr
    made = nbformat.read(done, as_version=4)
    errors = [
        "\n".join([cell.source, *out.traceback])
        for cell in made.cells if cell.cell_type == "code"
        for out in cell.outputs if out.output_type == "error"
    ]  # fmt: skip
    return Run(made, "\n".join(errors))


def book_of(cells: Sequence[str]) -> Any:
    """A notebook of these cells."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def test_the_page_about_notebooks_is_one(training: Target, tmp_path: Path) -> None:
    """Every cell of the docs' notebook runs, and shows what its text says."""
    training.wait_for_step(12)
    done = run(nbformat.read(PAGE, as_version=4), training, tmp_path)
    assert not done.failed
    assert f"process {training.pid}" in done.shown("probing.connect(pid)")
    steps = done.shown("job.steps(100)")
    assert steps.count("<svg") >= 3
    assert "loss" in steps
    assert "optimizer state" in done.shown("job.memory(")
    assert "optimizer state" in done.shown("job.memory(", "text/plain")
    assert "MainThread" in done.shown("job.backtrace()")
    assert "<th" in done.shown("answer = job.query")
    assert done.shown("import narwhals", "stream").startswith("True [(")
    assert "MainThread" in done.shown("await asyncio.gather")
    assert "GPT" in done.shown("print(type(model)", "stream")
    assert "5 rows are in modules" in done.shown("--into modules", "stream")
    assert "shape: (5, 3)" in done.shown("modules.pl()", "text/plain")


WITHOUT_COPY = """
import duckdb, narwhals, pandas, polars, pyarrow
def place(column):
    return column.chunk(0).buffers()[1].address
def address(series):
    return series.to_numpy(allow_copy=False).__array_interface__["data"][0]
table = answer.arrow()
assert table["duration"].num_chunks == 1
here = place(table["duration"])
assert place(pyarrow.table(answer)["duration"]) == here
assert address(polars.DataFrame(answer)["duration"]) == here
assert address(narwhals.from_arrow(answer, backend="polars").to_native()["duration"]) == here
typed = table.to_pandas(types_mapper=pandas.ArrowDtype)
assert place(typed["duration"].array.__arrow_array__()) == here
assert str(typed["step"].dtype) == "int64[pyarrow]"
assert duckdb.sql("SELECT count(*) FROM answer").fetchall() == [(len(answer),)]
assert duckdb.sql("SELECT count(*) FROM ranks").fetchall() == [(len(ranks),)]
assert pandas.DataFrame(answer)["duration"].tolist() == [row["duration"] for row in answer]
"""
SHOWN = (
    "job.tables()", "job.settings()", "job.jobs()", "job.acts()", "job.armed()",
    "job.labels(samples=1)", "job.dataloaders()", "job.summary()", "job.hang()",
    "job.stragglers()", "job.gradients(1)", "job.oom()", "job.doctor(within_s=5)",
    "job.profile(1)", "job.sample(0.5)", "job.live('tensors')", "job.eval('loss')",
    "job.diff(pid)", "ranks",
)  # fmt: skip


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_all_answers_show_themselves(training: Target, tmp_path: Path) -> None:
    """Each question's answer is drawn, none as its bare `repr`; rows are handed on as they are."""
    cells = [
        f"import probing\npid = {training.pid}\njob = probing.connect(pid)\n"
        "ranks = probing.connect_many('all').query('SELECT rank, step FROM python.steps')\n"
        "answer = job.query('SELECT step, duration FROM python.steps WHERE duration > 0')\n",
        WITHOUT_COPY, *SHOWN,
    ]  # fmt: skip
    done = run(book_of(cells), training, tmp_path)
    assert not done.failed
    for code in SHOWN:
        page = done.shown(code)
        assert page, code
        assert "Answer(" not in page, code
        assert "Report(" not in page, code
        assert "object at 0x" not in page, code


@pytest.fixture
def shell(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Any]:
    """A notebook's shell in this process, and in its names two processes, `a` and `b`."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    targets = [program("idle", PROBING="all") for _ in "ab"]
    for target in targets:
        target.wait_for_agent()
    monkeypatch.setenv("PROBING_HOME", str(targets[0].home))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell: Any = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    shell.user_ns.update(a=targets[0].pid, b=targets[1].pid, end=targets[0].kill)
    shell.extension_manager.load_extension("probing")
    yield shell
    shell.extension_manager.unload_extension("probing")


WHO = "import os\nos.getpid()"


def test_a_cell_that_names_an_endpoint_changes_it_for_itself_alone(shell: Any) -> None:
    """Only the line `%probing ENDPOINT` keeps one, and what it keeps is said where it fails."""

    def run(cell: str) -> Any:
        return shell.run_cell(cell)

    a, b = shell.user_ns["a"], shell.user_ns["b"]
    assert str(run(f"%%probing {a}\n{WHO}").result) == str(a)
    assert "say whom to ask: %%probing ENDPOINT" in str(run(f"%%probing\n{WHO}").error_in_exec)
    assert run("%probing {a}").result.label == str(a)
    once = (
        f"%%probing {b}\n{WHO}", "%%probing all --sql --into rows\nSELECT 1", f"%probing {b} 1",
        f"%probing --sql {b} SELECT 1", f"%%probing {b} --now\n1",
    )  # fmt: skip
    for cell in once:
        assert run(cell).success, cell
        assert str(run(f"%%probing\n{WHO}").result) == str(a), cell
    shell.user_ns["end"]()
    told = str(run("%%probing\n1").error_in_exec)
    assert f"process {a} has ended" in told
    assert told.endswith(f"so it asked the one that `%probing {a}` keeps.")
    assert "keeps" not in str(run(f"%%probing {a}\n1").error_in_exec)
    assert "names no endpoint" not in str(run("%%probing 999999999\n1").error_in_exec)
    assert run("%probing all").success
    assert "means several. The cell names no endpoint" in str(run("%%probing\n1").error_in_exec)


def test_an_error_is_its_sentence_and_the_way_out(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """In place of a traceback through our code, of what is awaited, too."""
    shell.run_cell("import asyncio, probing")
    awaited = "asyncio.run(probing.connect_async(999999999))"
    for ask in ("probing.connect(999999999)", awaited):
        error = shell.run_cell(ask).error_in_exec
        shown = capsys.readouterr().out
        assert shown == f"NoSuchProcess: {error.message}\n{error.help}\n", ask


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """A notebook's kernel that has run a cell, with the agent, and a client of it."""
    started = manager.KernelManager(connection_file=str(tmp_path / "kernel.json"))
    env = clean_env(tmp_path / "home", PROBING="all", IPYTHONDIR=str(tmp_path / "ipython"))
    started.start_kernel(env=env, cwd=str(tmp_path))
    client = started.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=DEADLINE_S)
        reply = client.execute("import asyncio, time", reply=True, timeout=DEADLINE_S)
        assert reply["content"]["status"] == "ok", reply
        yield started, client
    finally:
        client.stop_channels()
        started.shutdown_kernel(now=True)


def test_a_kernel_between_two_cells_is_idle(
    kernel: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is wrong with it, unlike with a cell that waits, by the main thread or by a task."""
    started, client = kernel
    pid = started.provisioner.pid
    env = clean_env(tmp_path / "home")
    monkeypatch.setenv("PROBING_HOME", env["PROBING_HOME"])
    process = probing.connect(pid, timeout_s=DEADLINE_S)

    def waits_for_code() -> bool:
        return is_at_prompt(doing_of(process.backtrace()))

    wait_until(waits_for_code, "the end of the cell")
    whole = ("--timeout", f"{DEADLINE_S:g}", str(pid))
    said = run_command(*whole, "hang", cwd=tmp_path, env=env).stdout
    assert " ".join(said.split()).startswith(
        f"OK: process {pid} is idle in a notebook, waiting for the next cell: no hang."
    ), said
    report = run_command(*whole, "doctor", "--format", "json", cwd=tmp_path, env=env).stdout
    found = {finding["rule"] for finding in json.loads(report)["findings"]}
    assert not found & {"hang", "waits", "stands-still"}
    client.execute("time.sleep(1000)")
    wait_until(lambda: not waits_for_code(), "a cell on the main thread")
    started.interrupt_kernel()
    wait_until(waits_for_code, "its end")
    client.execute("await asyncio.sleep(1000)")
    wait_until(lambda: not waits_for_code(), "a cell that is a task")


@pytest.mark.nightly
def test_a_process_that_ends_meanwhile_is_told(fresh_training: Target, tmp_path: Path) -> None:
    """What it recorded is still shown; what only it could tell ends a cell in one sentence."""
    pid = fresh_training.pid
    cells = [
        f"import os, signal, time, probing\n%load_ext probing\njob = probing.connect({pid})",
        f"%probing {pid}",
        f"os.kill({pid}, signal.SIGKILL)\n"
        f"while {pid} in {{one.pid for one in probing.list_processes()}}: time.sleep(0.1)",
        "job", "job.steps(5)", "%%probing\nstep",
        "%%probing --sql\nSELECT count(*) AS n FROM steps",
    ]  # fmt: skip
    done = run(book_of(cells), fresh_training, tmp_path)
    assert "SIGKILL" in done.shown("job") + done.shown("job", "text/plain")
    assert "<svg" in done.shown("job.steps(5)")
    assert "<td" in done.shown("--sql")
    assert "probing/cli/notebook" not in done.failed
