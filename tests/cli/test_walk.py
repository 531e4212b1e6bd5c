"""A client that knows `probing --help` and what each answer advises gets to the right answer.

It chooses by words alone: of all commands that were advised, the one whose description shares most
words with the question; the first of several such. PID stands for the newest process that `probing`
lists, OTHER for the one before it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness.jobs import Job, start_job
from tests.harness.targets import DEADLINE_S, Target, run_command, start_program, wait_until

pytestmark = [pytest.mark.torch, pytest.mark.slow]

MOST_COMMANDS = 3
FILLING = frozenset(
    re.findall(
        r"\w+",
        "a an and are between do does go goes how i in is it my of or so the there this to what"
        " when where which who why",
    )
)
ADVICE = (
    re.compile(r"^\s+(?P<said>\S.*?)\s{2,}(?P<command>probing .+)$"),
    re.compile(r"^\s*(?:next)?\s*(?P<command>probing .+?)\s{2,}(?P<said>.+)$"),
    re.compile(r"`(?P<command>probing [^`]+)`:?(?P<said>[^`]*)"),
)


@dataclass
class Client:
    """Asks one question, and reads.

    Attributes:
        said: What it knows: the help, then every answer.
        asked: The commands that it has run.
    """

    home: Path
    env: dict[str, str]
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def run(self, command: str) -> None:
        """Run a command, and remember what it says."""
        words = shlex.split(command)[1:]
        done = run_command(*words, cwd=self.home, env=self.env, timeout_s=DEADLINE_S)
        self.asked.append(command)
        self.said.append(done.stdout + done.stderr)

    def advised(self) -> Iterator[tuple[str, str]]:
        """What was said of every command that was advised, and the command."""
        for text in self.said:
            for line in text.splitlines():
                for form in ADVICE:
                    for found in form.finditer(line):
                        yield found["said"], found["command"]

    def choose(self, question: str) -> str | None:
        """The advised command that fits best; None where no other does."""
        wanted, best, chosen = words_of(question), 0, None
        for said, command in self.advised():
            named = self.named(command)
            fits = len(wanted & words_of(said))
            if fits > best and named is not None and named not in self.asked:
                best, chosen = fits, named
        return chosen

    def named(self, command: str) -> str | None:
        """The command with the processes' numbers in it; None where there are not so many."""
        pids = re.findall(r"^ *(\d+) ", self.said[1], re.MULTILINE)
        for place, word in enumerate(("PID", "OTHER")):
            if re.search(rf"\b{word}\b", command):
                if len(pids) <= place:
                    return None
                command = re.sub(rf"\b{word}\b", pids[place], command)
        return None if re.search(r"\b[A-Z]{3,}\b", command) else command

    def walk(self, question: str) -> str:
        """All that was answered to at most three commands."""
        self.said = [help_text(self.home, self.env)]
        self.asked = []
        self.run("probing")
        while len(self.asked) < MOST_COMMANDS:
            command = self.choose(question)
            if command is None:
                break
            self.run(command)
        return "\n".join(self.said[1:])


def words_of(text: str) -> set[str]:
    """The words that carry a meaning, without their endings."""
    return {
        re.sub(r"(ing|est|er|s)$", "", word)
        for word in re.findall(r"[a-z]+", text.lower())
        if word not in FILLING
    }


def help_text(home: Path, env: dict[str, str]) -> str:
    """What the client knows at first."""
    done = run_command("--help", cwd=home, env=env)
    assert done.returncode == 0
    return done.stdout


QUESTIONS = {
    "slow": [
        ("which module is slow", r"second +Nap"),
        ("what is the learning rate", r"0\.0123"),
        ("where does memory go", r"parameters +\d"),
        ("is it still making steps", r": training\n[^~]*step +\d"),
    ],
    "starved": [
        ("is it the data", r"the training waits for data [6-9]\d"),
        ("why is the loss NaN", r"(?s)loss.*step 3\d"),
        ("does it leak", r"(?s)walked\.py.*kept|kept.*walked\.py"),
        ("what changed", r"0\.05.*0\.0123|0\.0123.*0\.05"),
    ],
    "hung": [("why does it hang", r"lock")],
}


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Target]]:
    """One training for each kind; beside the starved one, another run with another rate."""
    started: dict[str, Target] = {}
    try:
        for way in QUESTIONS:
            cwd = tmp_path_factory.mktemp(way)
            if way == "starved":
                other = start_program("walked", "slow", "0.05", home=cwd / "home", cwd=cwd)
                started["other"] = other
                other.wait_for_step(3)
            started[way] = start_program("walked", way, "0.0123", home=cwd / "home", cwd=cwd)
        for way, step in (("slow", 12), ("starved", 45), ("hung", 10)):
            started[way].wait_for_step(step)
        yield started
    finally:
        for target in started.values():
            target.reap()


@pytest.mark.parametrize(
    ("way", "question", "answer"),
    [(way, *asked) for way, all_asked in QUESTIONS.items() for asked in all_asked],
)
def test_a_question_is_answered_in_three_commands(
    trainings: dict[str, Target], way: str, question: str, answer: str
) -> None:
    """From nothing to the right answer, by what the help and the answers advise."""
    target = trainings[way]
    client = Client(target.cwd, target.env)
    said = client.walk(question)
    assert re.search(answer, said), (client.asked, said)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """Two ranks, the second slow."""
    job = start_job("odd_ranks", "slow:1", ranks=2, cwd=tmp_path)
    wait_until(lambda: job.ask(0, "SELECT max(step) AS s FROM python.steps")[0]["s"] > 12, "steps")
    yield job
    job.reap()


def test_the_slow_rank_is_found_in_three_commands(job: Job) -> None:
    """Over the ranks of a job, too."""
    client = Client(job.cwd, job.env)
    said = client.walk("which rank is slow")
    assert "rank 1 is a straggler" in said, (client.asked, said)


OTHER_WORDS = [
    ("my loss became nan", "probing 7 doctor"),
    ("memory grows, is there a leak", "probing 7 leak"),
    ("it waits for the data", "probing 7 dataloaders"),
    ("the job hangs", "probing 7 hang"),
    ("one rank is slower", "probing -t all stragglers"),
    ("how many steps does it make", "probing 7"),
    ("what does memory hold", "probing 7 memory"),
]


@pytest.mark.parametrize(("question", "command"), OTHER_WORDS)
def test_other_words_lead_there_too(
    question: str, command: str, tmp_path: Path, trainings: dict[str, Target]
) -> None:
    """The first choice does not hang on how the question is put."""
    env = trainings["slow"].env
    client = Client(tmp_path, env, said=[help_text(tmp_path, env), " 7  training\n"])
    assert client.choose(question) == command
