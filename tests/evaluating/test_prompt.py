"""The prompt and the notebook magic: what is typed runs in the process."""

from __future__ import annotations

import contextlib
import os
import pty
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing.cli.prompt.prompt import is_whole, parts_of
from probing.cli.prompt.prompt_reader import KeptHistory
from tests.harness.targets import DEADLINE_S, Target, wait_until

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("1 + 1", True),
        ("def f():", False),
        ("def f():\n    return 1", False),
        ("def f():\n    return 1\n", True),
        ("def f():\n    return 1\n    ", True),
        ("def f():\n    ", False),
        ("x = (1,", False),
        ("await f()", True),
        ("%sql SELECT (", True),
        ("x = = 1", True),
    ],
)
def test_a_block_goes_on_until_it_is_whole(text: str, whole: bool) -> None:
    """What Python cannot run yet waits for more; what it never can is sent, to be told so."""
    assert is_whole(text) is whole


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("for i in x:\n    i\n%bt", ["for i in x:\n    i", "%bt", ""]),
        ("x = 1\n%sql SELECT 1\ny = 2", ["x = 1", "%sql SELECT 1", "y = 2"]),
        ("x = (7\n% 2)", ["x = (7\n% 2)"]),
        ("%bt", ["%bt"]),
        ('text = """\n%bt\n"""', ['text = """\n%bt\n"""']),
    ],
)
def test_a_command_ends_a_block(text: str, parts: list[str]) -> None:
    """What begins with a percent sign within a block is no Python, unless an expression goes on."""
    assert parts_of(text) == parts


def test_a_line_that_cannot_be_kept_is_run_all_the_same() -> None:
    """On a full disk the history has it for this prompt alone."""
    history = KeptHistory("/dev/full")
    history.append_string("1 + 1")
    assert history.get_strings() == ["1 + 1"]


def test_lines_of_a_pipe_run_one_after_the_other(training: Target) -> None:
    """Names stay, `_` is the last value, `%sql` and `%bt` answer; a failure is the exit code."""
    lines = [
        "kept_name = 20",
        "kept_name + 1",
        "_ * 2",
        "def twice(n):",
        "    return n * 2",
        "",
        "twice(_)",
        "print(type(model).__name__)",
        "%sql SELECT max(step) > 0 AS trains FROM python.steps",
        "for number in range(2):",
        "    print('in a block', number)",
        "%bt",
        "%who kept_name model",
        "optimizer = 5",
        "%who optimizer",
        "optimizer + 1",
        "%nonsense",
        "1 / 0",
        "quit()",
        "print('never')",
    ]
    done = training.run(str(training.pid), "repl", input="\n".join(lines) + "\n")
    out = done.stdout.splitlines()
    assert out[:4] == ["21", "42", "84", "GPT"]
    assert any("trains" in line for line in out)
    assert any("MainThread" in line for line in out)
    assert "in a block 1" in out
    who = [line.split() for line in out]
    assert ["kept_name", "int", "20"] in who
    assert ["model", "GPT"] in who
    assert ["optimizer", "int", "5"] in who, "the prompt's own name, not the script's"
    assert out.index("6") > 0
    assert "never" not in done.stdout
    assert "there is no %nonsense" in done.stderr
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")
    assert done.returncode == 1
    left = training.run(str(training.pid), "eval", "kept_name")
    assert "NameError" in left.stderr, "what the prompt has assigned has gone with it"


@contextlib.contextmanager
def deadline(client: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a client that takes longer than anything may."""
    timer = threading.Timer(DEADLINE_S, client.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def test_several_prompts_are_open_over_tcp_at_once(program: Callable[..., Target]) -> None:
    """Each has `_` and names of its own; without the token, none opens.

    They take turns, so that each is seen to be open while the others are asked.
    """
    listening = program("idle", PROBING="all", PROBING_LISTEN="127.0.0.1:0", PROBING_ALLOW_EVAL="1")
    listening.wait_for_agent()
    card = listening.folder.read_card()
    assert card is not None
    assert card.listen is not None
    token = listening.folder.token.read_text()
    away = str(listening.cwd / "elsewhere")
    for wrong in ("", "0" * 64):
        refused = listening.run(
            card.listen, "repl", input="1\n", PROBING_TOKEN=wrong, PROBING_HOME=away
        )
        assert (refused.returncode, refused.stdout) == (4, ""), refused.stderr
    command = [sys.executable, "-m", "probing", card.listen, "repl"]
    env = {**listening.env, "PROBING_HOME": away, "PROBING_TOKEN": token}
    clients = [
        subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]

    def ask(client: subprocess.Popen[str], line: str) -> str:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(f"{line}\n")
        client.stdin.flush()
        with deadline(client):
            return client.stdout.readline().strip()

    try:
        for number, client in enumerate(clients):
            assert ask(client, f"n{number} = {number}; n{number} + 10") == str(number + 10)
        for number, client in enumerate(clients):
            assert ask(client, "_ * 2") == str((number + 10) * 2)
            assert ask(client, "[n for n in range(3) if f'n{n}' in globals()]") == f"[{number}]"
            assert client.communicate(timeout=DEADLINE_S)[0] == ""
            assert client.returncode == 0
    finally:
        for client in clients:
            client.kill()
            client.wait()


def test_a_person_types_at_a_terminal(training: Target, tmp_path: Path) -> None:
    """Keys reach the process: a line, a completion by Tab, a history of the user's own."""
    ours, theirs = pty.openpty()
    env = {
        **training.env,
        "XDG_STATE_HOME": str(tmp_path),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    command = [sys.executable, "-m", "probing", str(training.pid), "repl"]
    client = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    os.set_blocking(ours, False)
    seen = bytearray()

    def shows(text: bytes) -> bool:
        with contextlib.suppress(OSError):  # nothing is there yet
            seen.extend(os.read(ours, 1 << 16))
        return text in seen

    def asks_after(text: bytes) -> bool:
        # Between two prompts the terminal itself takes Ctrl-D, which the next prompt never sees.
        return shows(text) and b">>>" in seen.rpartition(text)[2]

    try:
        wait_until(lambda: shows(b">>>"), "the prompt")
        os.write(ours, b"40 + 2 - 1000\r")
        wait_until(lambda: asks_after(b"-958"), "the value, and the next prompt")
        os.write(ours, b"optimizer.param_gro\t")
        wait_until(lambda: shows(b"ups"), "the completion")
        os.write(ours, b"[0]['lr'] * 0 + 123456\r")
        wait_until(lambda: asks_after(b"123456.0"), "the value of what was completed")
        os.write(ours, b"\x04")
        assert client.wait(DEADLINE_S) == 0
    finally:
        client.kill()
        client.wait()
        os.close(ours)
    history = tmp_path / "probing" / "history"
    assert "40 + 2 - 1000" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_cells_of_a_notebook_run_in_the_process(
    training: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`%load_ext probing` and `%%probing ENDPOINT`: output, value, completion, what is refused."""
    pytest.importorskip("IPython")
    script = (
        "from IPython.core.completer import provisionalcompleter\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "shell.run_line_magic('load_ext', 'probing')\n"
        f"cell = shell.run_cell('%%probing {training.pid}\\nprint(\"out\")\\n6 * 7')\n"
        "print('value', repr(cell.result))\n"
        f"cell = shell.run_cell('%probing {training.pid} 1 / 0')\n"
        "print('failed', not cell.success)\n"
        f"cell = shell.run_cell('%%probing {training.pid} --sql\\nSELECT 6 * 7 AS product')\n"
        "print('table', cell.result._repr_html_())\n"
        f"cell = shell.run_cell('%probing --sql {training.pid} SELECT 43 AS more')\n"
        "print('rows', cell.result.rows())\n"
        f"shell.user_ns.update(where={training.pid}, optimizer='of the notebook')\n"
        "cell = shell.run_cell('%probing $where f\"{type(optimizer).__name__}\"')\n"
        "print('in the training', cell.result)\n"
        "cell = shell.run_cell('%%probing {where}\\n2 * 21')\n"
        "print('at a variable', cell.result)\n"
        f"shell.run_cell('%probing {training.pid}')\n"
        "shell.run_cell('%%probing --sql --into kept\\nSELECT 44 AS more')\n"
        "print('kept', shell.user_ns['kept'].rows())\n"
        "def offered(text, rest=''):\n"
        "    with provisionalcompleter():\n"
        "        found = shell.Completer.completions(text + rest, len(text))\n"
        "        return [one.text for one in found]\n"
        "sql = '%%probing --sql\\nSELECT '\n"
        "print('tables', offered(sql + '* FROM python.opt'))\n"
        "print('columns', offered(sql + 'lo', ' FROM python.steps'))\n"
        "print('names', offered('%%probing\\noptimizer.param_gro'))\n"
        f"print('endpoints', offered('%%probing {training.pid}'[:-1]))\n"
        "print('others', offered('import pathli'))\n"
        "for wrong in ('--into 9', '--into kept', '--wrong', 'all', chr(39)):\n"
        "    cell = shell.run_cell(f'%%probing {wrong}\\n1')\n"
        "    print('refused', type(cell.error_in_exec).__name__)\n"
        "shell.run_cell('%unload_ext probing')\n"
        "print('unloaded', 'probing' in shell.magics_manager.magics['cell'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**training.env, "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert "out" in lines
    assert "value 42" in lines
    assert "failed True" in lines
    assert "in the training 'AdamW'" in lines
    assert "at a variable 42" in lines
    assert "rows [{'more': 43}]" in lines
    assert ">42</td>" in done.stdout
    assert "kept [{'more': 44}]" in lines
    assert "tables ['python.optimizer_steps', 'python.optimizers']" in lines
    assert "columns ['loss', 'loss_finite', 'loss_s']" in lines
    assert "names ['param_groups']" in lines
    assert f"endpoints ['{training.pid}']" in lines
    assert "others ['pathlib']" in lines
    assert lines.count("refused UsageError") == 5
    assert "unloaded False" in lines
    assert "ZeroDivisionError: division by zero" in done.stdout + done.stderr
    assert "cli/notebook" not in done.stdout + done.stderr
