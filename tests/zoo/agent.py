"""How many tools of `probing mcp` it takes to come to the right finding.

python -m tests.zoo.agent [NAME ...]

The agent is a script with the client of the official SDK. It knows what its user complains of, the
descriptions of the tools, and what answers say; of probing it knows nothing. It asks which
trainings there are, then the tool whose description has most of the complaint's words. Of findings
it believes them in their order, and asks what each advises next before it goes on to the next one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import pathlib
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from probing.diagnosis.doctor.report import ALL_RULES
from tests.zoo.judge import is_there, right_rules
from tests.zoo.table import Expectation, expectations
from tests.zoo.trainings import NotThere, Training

if TYPE_CHECKING:
    from mcp import Client, StdioServerParameters

NAMES = (
    "lm_03", "rl_01", "seq_01", "tabular_01", "vision_01", "vision_03",
    "gan_01", "lm_05", "speech_03", "tabular_03", "vision_06",
    "lm_08", "lm_10", "recsys_04", "seq_04", "vision_10",
    "graph_05", "lm_12",
    "gan_02", "lm_15",
)  # fmt: skip
"""The programs that are asked about unless others are named: some of each group."""
MOST_CALLS = 4
_GIVEN_UP = 9
COMPLAINTS = {
    "stops": "the training makes no more steps, it seems to hang",
    "slow": "its steps are slow",
    "numbers": "the loss does not fall as it should, or is NaN",
    "memory": "its memory grows",
    "crashed": "it has ended with a crash",
    "healthy": "is there something wrong with it",
}
_MORE_TIME, _LONG_S = "a longer --timeout gives it more", 200.0
_FENCE = re.compile(r"<data (\w{8})>\n(.*?)\n</data \1>", re.DOTALL)
_HEAD = re.compile(r"^ ?\d+ (?=\S)", re.MULTILINE)
_LOOKS = frozenset({"dataloaders", "stragglers", "gradients", "summary", "leak", "oom", "profile",
                    "overview", "status", "jobs"})  # fmt: skip
_AROUND = re.compile(r"\A ?\d+ | (?:certain|likely|possible)$", re.MULTILINE)
"""What stands beside a sentence: its number, and how sure it is."""
_REST = re.compile(r"^ *- |^ *fix: |^ *next: ", re.MULTILINE)
_WORD = re.compile(r"[a-z]{4,}")
_SAME = {"backtrace": "stacks", "tables": "describe_tables"}

_OTHERS = frozenset({"list_targets", "query", "look", "history"})
"""Tools that take more than an endpoint."""

Call = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class Search:
    """What one agent did.

    Attributes:
        calls: The tools that it asked, in that order.
        said: What it took for the answer; empty where it gave up.
        last: Where it gave up: the answer that it had to go by.
        seconds: How long all of that took.
    """

    name: str
    calls: list[str] = field(default_factory=list)
    said: str = ""
    last: str = ""
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether it came there, soon enough."""
        return bool(self.said) and len(self.calls) <= MOST_CALLS

    def line(self) -> str:
        """Its row of the table."""
        way, end = " > ".join(self.calls), self.said or f"not found in\n{self.last}"
        return f"{self.name:12} {len(self.calls)}  {self.seconds:5.1f} s  {way}: {end}"


@dataclass(frozen=True, slots=True)
class Told:
    """One finding as an agent reads it."""

    text: str

    @property
    def advised(self) -> str:
        """The command that it advises."""
        found = re.search(r"^ *next: (.*)$", self.text, re.MULTILINE)
        return found[1] if found else ""

    @property
    def rules(self) -> set[str]:
        """The rules that it can be of: by what one always advises to mend, or to ask next."""
        fix = re.search(r"fix: (.*?)(?=^ *next: )", self.text, re.MULTILINE | re.DOTALL)
        mend = " ".join(fix[1].split()) if fix else ""
        exact = {rule.name for rule in ALL_RULES if rule.fix and mend.startswith(rule.fix[:40])}
        ask = _command(self.advised)
        return exact or {rule.name for rule in ALL_RULES if ask and ask == _command(rule.next)}

    @property
    def summary(self) -> str:
        """Its first sentence."""
        return " ".join(_AROUND.sub("", _REST.split(self.text)[0]).split())


def findings(answer: str) -> list[Told]:
    """The findings in an answer of the doctor."""
    edges = [*(found.start() for found in _HEAD.finditer(answer)), len(answer)]
    return [Told(answer[begin:end]) for begin, end in itertools.pairwise(edges)]


def call_of(command: str, endpoint: str) -> Call | None:
    """The tool that does what a command does, by what the server says of that; None for no tool."""
    words = _behind_endpoints(command, endpoint)
    if not words:
        return None
    name, rest = _SAME.get(words[0], words[0]), words[1:]
    if name == "query":
        return name, {"endpoint": endpoint, "sql": rest[-1]}
    if name in {"hang", "stacks", "memory", "doctor", "describe_tables"}:
        return name, {"endpoint": endpoint}
    return ("look", {"endpoint": endpoint, "what": name}) if name in _LOOKS else None


def choose(complaint: str, tools: dict[str, str]) -> str:
    """The tool whose description has most words of the complaint; the first of several such."""
    wanted = set(_WORD.findall(complaint.lower()))
    return max(tools, key=lambda name: len(wanted & set(_WORD.findall(tools[name].lower()))))


def _behind_endpoints(command: str, endpoint: str) -> list[str]:
    """The words of a command of probing, without whom it asks; none of any other command."""
    words = shlex.split(command)[1:] if command.startswith("probing ") else []
    while words and (words[0].startswith("-") or words[0] == endpoint or words[0].isdecimal()):
        words = words[2 if words[0] in {"-t", "--target"} else 1 :]
    return words


def _command(advised: str) -> str:
    """What a command is called."""
    return "".join(_behind_endpoints(advised.replace("ENDPOINT", "0"), "0")[:1])


async def search(client: Client, expected: Expectation) -> Search:
    """Ask until the right finding is the next to be believed, or nothing is left to ask."""
    done, began = Search(expected.name), time.monotonic()
    complaint = COMPLAINTS[expected.group]
    tools = {t.name: t.description or "" for t in (await client.list_tools()).tools}

    async def ask(tool: str, **given: Any) -> str:
        done.calls.append(str(given.get("what", tool)))
        result = await client.call_tool(tool, given)
        text = str(getattr(result.content[0], "text", ""))
        return "\n".join(data for _, data in _FENCE.findall(text)) or text

    has_ended = "ended" in complaint
    listed = await ask("list_targets", **({"ended": True} if has_ended else {}))
    pids = re.findall(r"^ *(\d+) ", listed, re.MULTILINE)
    endpoint = pids[0] if len(pids) == 1 else " ".join(pids) if has_ended else "all"
    answer = await ask(
        choose(complaint, {n: words for n, words in tools.items() if n not in _OTHERS}),
        endpoint=endpoint,
    )
    if _MORE_TIME in answer:  # a machine that is busy, and says so
        answer = await ask("doctor", endpoint=endpoint, timeout_s=_LONG_S)
    for told in findings(answer):
        if _is_right(told, expected):
            done.said = told.summary
            break
        call = call_of(told.advised, endpoint)
        if call is None or len(done.calls) >= _GIVEN_UP:
            continue
        more = await ask(call[0], **call[1])
        if expected.group == "stops" and is_there(expected, {"summary": more, "evidence": []}):
            done.said = f"named by {done.calls[-1]}"
            break
    if not done.said:
        done.last = answer
    done.seconds = time.monotonic() - began
    return done


def _is_right(told: Told, expected: Expectation) -> bool:
    """Whether a finding is what the judge of the doctor takes for right, too."""
    if not told.rules & set(right_rules()[expected.name]):
        return False
    return is_there(expected, {"summary": told.summary, "evidence": [told.text]})


def look_at(expected: Expectation, deadline_s: float = 300.0) -> Search:
    """Start one program, and let an agent find out about it.

    Raises:
        NotThere: The program did not come to the point where it is to be looked at.
    """
    home = pathlib.Path(tempfile.mkdtemp(prefix="zoo-", dir="/dev/shm"))
    folder = home / "folder"
    folder.mkdir()
    try:
        with contextlib.closing(Training(expected, folder, home)) as training:
            training.wait_until_worth_a_look(deadline_s)
            from mcp import StdioServerParameters

            server = StdioServerParameters(
                command=sys.executable, args=["-m", "probing", "mcp"],
                env={**training.environment, "PROBING": "0"},
            )  # fmt: skip
            return asyncio.run(_served(server, expected))
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _served(server: StdioServerParameters, expected: Expectation) -> Search:
    from mcp import Client

    async with Client(server, read_timeout_seconds=300.0) as client:
        return await search(client, expected)


def searches(names: list[str]) -> Iterator[Search]:
    """What came of each program, one after the other."""
    for expected in expectations(names):
        try:
            yield look_at(expected)
        except NotThere as error:
            yield Search(expected.name, said=f"not looked at: {error}")


def main() -> int:
    """Print a line for each program, then the counts; 1 where one took too many calls."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.zoo.agent", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; none: twenty of them")
    names = parser.parse_args().names or [*NAMES]
    found = []
    for one in searches(names):
        print(one.line(), flush=True)
        found.append(one)
    right = sum(one.is_right for one in found)
    print(f"{right} of {len(found)} found in at most {MOST_CALLS} calls")
    return int(right < len(found))


if __name__ == "__main__":
    sys.exit(main())
