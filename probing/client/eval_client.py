"""Receives the results of an eval that is repeated, as they come.

Rules of this file: runs at the operator's side. Closing the iterator closes the connection, and the
agent ends the eval.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..errors import InternalError
from ..messages import common as wire
from ..messages.about.eval import RepeatRequest
from ..messages.limits import grace_s
from ..reach.address import Address
from ..reach.transport import open_answer


def results_of(
    address: Address, request: RepeatRequest, timeout_s: float
) -> Iterator[wire.EvalResult]:
    """The result of each run.

    Args:
        timeout_s: How long each wait for a step, and each run, may take.

    Raises:
        ProbingError: What ended the repetition before it was done.
    """
    more_s = timeout_s + grace_s()  # a wait and a run
    with open_answer(
        address, "repeat", body=request, timeout_s=timeout_s, grace_s=more_s
    ) as answer:
        while line := answer.read_line():
            yield _result(line)


def _result(line: bytes) -> wire.EvalResult:
    """The result in a line.

    Raises:
        ProbingError: The line is an error.
    """
    try:
        if isinstance(json.loads(line)["error"], dict):
            raise wire.decode_error(line)
        return wire.decode(wire.EvalResult, line)
    except (ValueError, KeyError, TypeError):
        raise InternalError("the agent's answer broke off") from None
