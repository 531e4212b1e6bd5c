"""An agent that only reads comes to the right finding in few calls."""

from __future__ import annotations

import sys

import pytest

from tests.zoo.agent import (
    COMPLAINTS,
    MOST_CALLS,
    NAMES,
    call_of,
    choose,
    findings,
    look_at,
)
from tests.zoo.table import expectations

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the table is TOML")

SAID = """\
 1 The training waits for data 71 % of its time.                          certain
     - 40 batches
   fix: Raise num_workers, or have each sample cost less.
   next: probing 4242 dataloaders
 2 It is slower since step 150.                                          possible
   next: probing -t all query "SELECT step, duration FROM python.steps"

healthy: memory, numbers
"""


def test_findings_are_read_as_they_stand() -> None:
    """Each with its sentence, its rule, and the tool that does what it advises."""
    first, second = findings(SAID)
    assert first.summary == "The training waits for data 71 % of its time."
    assert first.rules == {"data-wait"}
    assert call_of(first.advised, "4242") == ("look", {"endpoint": "4242", "what": "dataloaders"})
    sql = "SELECT step, duration FROM python.steps"
    assert call_of(second.advised, "all") == ("query", {"endpoint": "all", "sql": sql})
    assert call_of("probing 4242 backtrace -v", "4242") == ("stacks", {"endpoint": "4242"})
    assert call_of("probing 4242 arm nan", "4242") is None
    assert call_of("py-spy dump", "4242") is None


def test_the_description_of_the_first_tool_has_the_words_of_complaints() -> None:
    """Who complains in words of their own is led to the doctor."""
    from probing.mcp import tools

    words = {
        name: getattr(tools, name).__doc__
        for name in ("doctor", "hang", "stacks", "steps", "memory", "describe_tables")
    }
    for group, complaint in COMPLAINTS.items():
        assert choose(complaint, words) == "doctor", group


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_an_agent_finds_it_in_few_calls(name: str) -> None:
    """From the list of trainings to the right finding, one program each."""
    (expected,) = expectations([name])
    found = look_at(expected)
    assert found.said, found.line()
    assert len(found.calls) <= MOST_CALLS, found.line()
