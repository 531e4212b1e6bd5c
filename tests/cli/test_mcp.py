"""`probing mcp`, driven by the client of the official SDK."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from probing.cli import preferences
from tests.harness.late import Late, late
from tests.harness.packages import PAGES
from tests.harness.rows_of_ranks import asked
from tests.harness.targets import DEADLINE_S, ROOT, Target

if TYPE_CHECKING:
    from mcp import Client

mcp = late("mcp", reason="it is of other Pythons than the first")
mcp_errors = Late("mcp.server.mcpserver.exceptions")
asking = Late("probing.mcp.asking")
server = Late("probing.mcp.server")
strangers = Late("probing.mcp.strangers")
tools = Late("probing.mcp.tools")
pytestmark = pytest.mark.torch

LOOKING = {
    *("list_targets", "doctor", "hang", "stacks", "steps", "query", "describe_tables"),
    *("memory", "look", "history"),
}
FENCE = re.compile(r"<data (\w{8})>\n(.*?)\n</data \1>", re.DOTALL)


class Agent:
    """What a coding agent does with the server."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, tool: str, **given: Any) -> str:
        """The data of an answer, of which there has to be one."""
        result = await self.client.call_tool(tool, given)
        text = str(getattr(result.content[0], "text", ""))
        assert not result.is_error, text
        (_, data), *_ = FENCE.findall(text)
        return str(data)

    async def refused(self, tool: str, **given: Any) -> str:
        """What an answer says that is an error."""
        result = await self.client.call_tool(tool, given)
        assert result.is_error
        return str(getattr(result.content[0], "text", ""))


def served(target: Target, use: Callable[[Agent], Awaitable[None]], *options: str) -> None:
    """Start the server as an agent does, and use it."""
    command = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "probing", "mcp", *options], env=target.env
    )

    async def drive() -> None:
        async with mcp.Client(command, read_timeout_seconds=120.0) as client:
            await use(Agent(client))

    asyncio.run(drive())


def test_an_agent_looks_and_changes_nothing(training: Target) -> None:
    """Each tool answers as its command does, fenced; what is wrong is said as such."""
    pid = str(training.pid)

    async def use(agent: Agent) -> None:
        tools = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
        assert set(tools) == LOOKING
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())
        assert pid in await agent.ask("list_targets")
        rows = (await agent.ask("steps", endpoint=pid, last=3)).splitlines()
        assert rows[0].startswith("rank,pid,step,duration,loss,grad_norm,lr,samples,tokens_per_s,")
        assert all(row.startswith(f",{pid},") for row in rows[1:])
        assert len(rows) == 4
        asked = await agent.ask("query", endpoint=pid, sql="SELECT 6 * 7 AS answer")
        assert asked.splitlines() == ["answer", "42"]
        assert "MainThread" in await agent.ask("stacks", endpoint=pid)
        assert "syntax error" in await agent.refused("query", endpoint=pid, sql="SELEC 1")
        gone = await agent.refused("doctor", endpoint="rank:7")
        assert "rank 7" in gone
        assert "exit code 3" in gone
        assert "`list_targets`" in await agent.refused("hang", endpoint=" ")
        await no_file_is_read(agent, pid, training.cwd)
        await nothing_is_written(agent, pid)
        await all_is_described(agent.client)

    served(training, use)


async def no_file_is_read(agent: Agent, pid: str, folder: Path) -> None:
    """A file's name is no statement and no endpoint; a saved question is a statement."""
    path = folder / "of-the-user.sql"
    path.write_text("their words")
    for tool, given in (("query", {"endpoint": pid}), ("history", {"folder": str(folder)})):
        refusal = await agent.refused(tool, **given, sql=str(path))
        assert "words" not in refusal.replace(str(path), "")
    refusal = await agent.refused("doctor", endpoint=f"{pid} @{path}")
    assert "words" not in refusal
    assert "a file of hosts" in refusal
    assert await agent.ask("query", endpoint=pid, sql="@slowest-modules")


async def nothing_is_written(agent: Agent, pid: str) -> None:
    """What is not allowed is no tool, and what stands for a name no option of a command."""
    assert "eval" in await agent.refused("eval", endpoint=pid, code="1")
    for tool, given in (("describe_tables", {"endpoint": pid}), ("history", {})):
        name = "table" if tool == "describe_tables" else "folder"
        refusal = await agent.refused(tool, **given, **{name: "--output=made"})
        assert "--output=made" in refusal


async def all_is_described(client: Client) -> None:
    """Tables, questions, findings and pages are resources, and the usual complaints prompts."""
    found = {str(one.uri) for one in (await client.list_resources()).resources}
    names = ("tables", "questions", "findings", "pages")
    assert found == {f"probing://{name}" for name in names}
    findings = (await client.read_resource("probing://findings")).contents[0]
    assert "terminated (certain at most): There is no" in str(getattr(findings, "text", ""))
    tables = (await client.read_resource("probing://tables")).contents[0]
    assert "python.steps: step, duration, loss" in str(getattr(tables, "text", ""))
    await pages_are_read(client)
    prompts = {one.name for one in (await client.list_prompts()).prompts}
    assert prompts == {"hang", "slow", "memory", "nan"}
    prompt = await client.get_prompt("hang", {"endpoint": "4242"})
    assert "The endpoint is: 4242" in str(getattr(prompt.messages[0].content, "text", ""))


async def pages_are_read(client: Client) -> None:
    """Each of the list is there, as in the tree; of another name is told which it may be."""

    async def text_of(name: str) -> str:
        (content,) = (await client.read_resource(f"probing://pages{name}")).contents
        return str(getattr(content, "text", ""))

    (template,) = (await client.list_resource_templates()).resource_templates
    assert template.uri_template == "probing://pages/{+name}"
    lines = (await text_of("")).splitlines()
    assert "how-to/nan: The loss is NaN: Or infinite: find since when, " in "\n".join(lines)
    names = [line.partition(":")[0] for line in lines]
    found = [path for room in PAGES for path in sorted((ROOT / "docs" / room).glob("*.md"))]
    assert names == ["README", *(f"{path.parent.name}/{path.stem}" for path in found)]
    assert await text_of("/README") == (ROOT / "README.md").read_text("utf-8")
    for name in ("/how-to/hang", "/how-to/hang.md"):
        assert await text_of(name) == (ROOT / "docs" / "how-to" / "hang.md").read_text("utf-8")
    told = "There is no page hang, but how-to/hang: probing://pages has the names of all."
    with pytest.raises(mcp.MCPError, match=re.escape(told)):
        await text_of("/hang")
    for name in ("/../README", "/how-to/%2E%2E/%2E%2E/server", "/%2Fetc/passwd"):
        with pytest.raises(mcp.MCPError):
            await text_of(name)


def test_each_rank_has_its_last_steps() -> None:
    """One that is far ahead leaves room for the others, and each row says whose it is."""
    ranks = {
        rank: {"steps": [{"step": step, "pid": 70 + rank} for step in range(first, first + 9)]}
        for rank, first in enumerate((100, 3))
    }
    found = asked(tools._STEPS.format(last=2), ranks)
    assert [(row["rank"], row["pid"], row["step"]) for row in found] == [
        (0, 70, 108), (0, 70, 107), (1, 71, 11), (1, 71, 10)
    ]  # fmt: skip


def test_what_the_user_allows_can_be_done(training: Target) -> None:
    """Code runs, and the rate changes, each on record."""
    pid = str(training.pid)

    async def use(agent: Agent) -> None:
        assert (await agent.ask("eval", endpoint=pid, code="6 * 7")).startswith("42")
        assert "lr" in await agent.ask("act", endpoint=pid, action=["lr", "--scale", "1.0"])
        sql = "SELECT code FROM python.evals ORDER BY seq DESC LIMIT 1"
        assert "6 * 7" in await agent.ask("query", endpoint=pid, sql=sql)

    served(training, use, "--allow-eval", "--allow-act")


def test_an_action_writes_over_no_file() -> None:
    """What writes into a file that is there, or asks another target, is no word of an agent's."""
    for words in (
        ("list", "-o", "/theirs"), ("list", "-o/theirs"), ("list", "--output=/theirs"),
        ("checkpoint", "/theirs", "--force"), ("list", "--json", "-t", "@/theirs"),
        ("list", "--token-file", "/theirs"), ("--", "list"),
    ):  # fmt: skip
        with pytest.raises(mcp_errors.ToolError, match="An agent may not use -"):
            asyncio.run(tools.act("0", list(words)))


def test_an_agent_has_all_other_options_of_actions() -> None:
    """Each option of `act` is one that it may use, or is known to name a file or who is asked."""
    group = import_module("probing.cli.commands.act").command
    shared = {word for one in group.params for word in one.opts}
    every = {
        o for one in group.commands.values() for p in one.params for o in p.opts if o[0] == "-"
    }
    assert every - shared - tools.ACT_OPTIONS == {"--force", "-o", "--output"}


def test_a_hung_and_a_dead_process_are_asked(program: Callable[..., Target]) -> None:
    """Where it is while it hangs, and how it ended."""
    target = program("hung", "lock", PROBING="1")
    target.wait_for_output("ready")

    async def use(agent: Agent) -> None:
        assert "acquire" in await agent.ask("stacks", endpoint=str(target.pid))
        target.kill()
        assert "SIGKILL" in await agent.ask("doctor", endpoint=str(target.pid))
        gone = await agent.refused("memory", endpoint=str(target.pid))
        assert "has ended" in gone
        assert "python.memory has what was in use" in gone
        assert "What it recorded still answers: `doctor`, " in gone
        assert "`query 'FROM python.evals'`" in await agent.refused(
            "look", endpoint=str(target.pid), what="jobs"
        )

    served(target, use)


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("steps", {"endpoint": 4242, "last": "many"},
         'last is "many", and has to be a whole number from 1 up to 1,000 (How many of the last'
         " steps of each)."),
        ("doctor", {}, "endpoint is missing, and has to be a text (Whom to ask: a pid, "),
        ("doctor", {"endpoint": "1", "timeout_s": 0},
         "timeout_s is 0, and has to be a number over 0 up to 600 (How long to look"),
        ("look", {"endpoint": "1", "what": "hang"},
         'what is "hang", and has to be one of overview, dataloaders, stragglers, gradients,'
         " summary, leak, oom, profile, status, jobs (`hang` is a tool of its own)."),
        ("query", {"endpoint": "1", "sql": "SELECT 1", "max_rows": 3},
         "`query` takes no max_rows: it takes endpoint, sql, limit, timeout_s."),
        ("act", {"endpoint": "1", "action": "undo"}, 'action is "undo", and has to be a list of'),
        ("eval", {"endpoint": "1", "code": "1"}, "by starting `probing mcp --allow-eval`."),
        ("backtrace", {"endpoint": "1"}, "`backtrace` is no tool: `stacks` does it."),
        ("oom", {"endpoint": "1"}, "`oom` is no tool: `look` with what=oom does it."),
        ("train", {}, "`train` is no tool: there are list_targets, doctor, "),
    ],
)  # fmt: skip
def test_a_wrong_call_is_told_what_to_give(tool: str, given: dict[str, Any], says: str) -> None:
    """In one sentence, without the words of a library; a pid may be a number."""
    with pytest.raises(mcp_errors.ToolError) as refused:
        asyncio.run(server.make_server(allow_act=True).call_tool(tool, given))
    told = str(refused.value)
    assert says in told
    assert "\n" not in told
    assert "pydantic" not in told


def test_a_long_answer_is_cut_at_a_line() -> None:
    """It says how much is missing."""
    text = "\n".join(["x" * 99] * 1000)
    cut = asking._cut(text)
    assert len(cut) < asking.MOST_CHARS + 100
    assert cut.splitlines()[-1].startswith("[cut: 76,")
    assert asking._cut("short") == "short"


def test_a_long_line_leaves_room_for_the_others() -> None:
    """A name of 50,000 characters is cut itself, and what stands below it is there."""
    cut = asking._cut("\n".join(["first", "N" * 50_000, "last"]))
    assert cut.splitlines()[::2] == ["first", "last"]
    assert cut.splitlines()[1].endswith("N [cut: 49,000 characters of this line are missing]")


SECRET = "0" * 63 + "5"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file of a user who has a token, and has said nothing of certificates."""
    for name in ("TLS_CA", "TLS_FINGERPRINT", "INSECURE_PLAINTEXT"):
        monkeypatch.delenv(f"PROBING_{name}", raising=False)
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PROBING_TOKEN", SECRET)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(preferences, "_read", {})
    return tmp_path / "probing.toml"


def received(form: str, *, is_named: Path | None = None) -> str:
    """What a listener gets whom a tool asks, and what is said of it.

    Args:
        form: How the address is written.
        is_named: The settings file that has it, too.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = form.format(listener.getsockname()[1])
        if is_named is not None:
            is_named.write_text(f'[endpoints]\nmine = "{address}"\n')
        heard: list[bytes] = []
        hearing = threading.Thread(target=hear, args=(listener, heard), daemon=True)
        hearing.start()
        with pytest.raises(mcp_errors.ToolError) as refused:
            asyncio.run(asking.ask(address, "status", timeout_s=DEADLINE_S))
        listener.shutdown(socket.SHUT_RDWR)
        hearing.join()
    return b"".join(heard).decode("latin-1") + str(refused.value)


def hear(listener: socket.socket, heard: list[bytes]) -> None:
    """Take requests until there are no more, and answer none."""
    with contextlib.suppress(OSError):
        while True:
            with listener.accept()[0] as connection:
                heard.append(connection.recv(1 << 16))


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "http://localhost:{}"])
def test_a_stranger_gets_no_token(form: str, user: Path) -> None:
    """Whom an agent alone has named may be anybody: neither the variable's nor the file's."""
    (user.parent / "token").write_text("1" * 63 + "6")
    user.write_text(f'[defaults]\ntoken-file = "{user.parent / "token"}"\n')
    heard = received(form)
    assert "GET /v1/" in heard
    assert "uthorization" not in heard
    assert "token was not sent, since nobody but you has named" in heard


def test_whom_the_user_has_named_gets_it(user: Path) -> None:
    """An address in the settings file is as good as typed."""
    heard = received("127.0.0.1:{}", is_named=user)
    assert SECRET in heard
    assert "was not sent" not in heard


@pytest.mark.parametrize(
    ("word", "said", "is_one"),
    [
        *((word, {}, True) for word in (
            "https://attacker.example", "http://127.0.0.1:8080", "gpu7:9741", "[::1]:9741",
            "https://attacker.example/v1/ranks/7-8", "slurm:localhost", "a@b:80",
            "https://gpu8:9741@attacker.example", "https://gpu8:9741?a", "http://gpu8",
            "gpu9:9741",
        )),
        *((word, {}, False) for word in (
            "4242", "train.py", "all", "job:a", "rank:3", "job:a/rank:0-3", "/run/probing/7-8",
            "slurm:", "slurm:4242", "store:head:29500", "mine",
            "gpu8:9741", "https://gpu8:9741/v1/ranks/7-8", "https://gpu9:9741",
        )),
        ("gpu7:9741", {"TLS_CA": "/its/ca.pem"}, False),
        ("https://gpu7", {"TLS_FINGERPRINT": "ab" * 32}, False),
        ("http://127.0.0.1:8080", {"TLS_CA": "/its/ca.pem"}, True),
        ("https://gpu7", {"TLS_FINGERPRINT": "none"}, True),
        ("gpu7:9741", {"INSECURE_PLAINTEXT": "1"}, False),
    ],
)  # fmt: skip
def test_who_is_a_stranger(word: str, said: dict[str, str], user: Path, *, is_one: bool) -> None:
    """All that only an agent has named, unless it has to show a certificate of the user's."""
    user.write_text('[endpoints]\nmine = "gpu8:9741"\nsecure = "https://gpu9:9741"\n')
    env = {f"PROBING_{name}": value for name, value in said.items()}
    assert strangers.is_stranger(word, env) is is_one


def test_certificates_may_be_named_in_the_settings_file(user: Path) -> None:
    """As on the command line."""
    user.write_text('[defaults]\ntls-ca = "/its/ca.pem"\n')
    assert not strangers.is_stranger("gpu7:9741", {})


def test_what_is_wrong_in_the_settings_file_makes_nobody_known(user: Path) -> None:
    """The command says what it is; the token stays."""
    user.write_text("no toml")
    assert strangers.is_stranger("gpu7:9741", {"PROBING_INSECURE_PLAINTEXT": "1"})
