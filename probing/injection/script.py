"""The line that is injected, and the scripts that it runs.

Rules of this file: texts only. What is injected must be short, leave no name behind in
``__main__``, depend on none that the job may have replaced there, and do nothing once the
script is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import bootstrap, evaluation

# Short, for the room there is; closed, because the warning about a file that is not leaves
# `__warningregistry__` behind.
_CODE = "with open({path!r})as f:exec(f.read(),{{}})"
# Not by `__builtins__`: in a `__main__` made by `runpy`, as of a spawned worker, it is a dict.
_CALL = "try:__import__('builtins').exec({code!r},{{}})\nexcept:pass\n"


def injected_code(script: str) -> str:
    """The code that runs a script, if it is still there."""
    return _CALL.format(code=_CODE.format(path=script))


def bootstrap_text(order: bootstrap.Order) -> str:
    """The script that brings the agent in."""
    return _text("bootstrap", order)


def evaluation_text(order: evaluation.Order) -> str:
    """The script that runs a piece of code."""
    return _text("evaluation", order)


def _text(name: str, order: Mapping[str, object]) -> str:
    """A script of this folder with its order behind it, in ASCII."""
    text = Path(__file__).with_name(f"{name}.py").read_text("ascii")
    return f"{text}\n\nbegin({dict(order)!a})\n"
