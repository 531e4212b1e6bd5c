"""From which checkpoint to start again, and how.

Rules of this file: reads python.checkpoints by a query, and the script's own file where it is on
this machine; runs nothing of it.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

from ..arguments import command_without_secrets
from ..linux.foreign_files import read_file
from ..messages.frozen import dataclass

if TYPE_CHECKING:
    from ..client.base import Process

_NEWEST = (
    "SELECT path, step, weights_finite FROM python.checkpoints WHERE path NOT LIKE '%/'"
    " AND has_model AND NOT failed AND duration_ns IS NOT NULL AND weights_finite IS NOT false"
    " AND step < {step} ORDER BY step DESC, seq DESC LIMIT 1"
)
_MOST_BYTES = 1 << 20
_OPTION = re.compile(
    r"""["'](--(?:resume|resume[-_]from|resume[-_]from[-_]checkpoint|restore|restore[-_]from|"""
    r"""init[-_]from|load|load[-_]checkpoint|from[-_]checkpoint|checkpoint|ckpt|ckpt[-_]path))["']"""
)
"""How scripts call the option that takes a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A checkpoint that may be started from.

    Attributes:
        path: Where it is.
        step: The last step before it.
        is_sound: Whether its weights were seen to be finite; None where that was not known.
        line: What to type, with `***` for each secret; None where the script does not show how it
            takes a checkpoint.
    """

    path: str
    step: int
    is_sound: bool | None
    line: str | None

    def sentences(self) -> list[str]:
        """It in words."""
        sound = ", its weights finite" if self.is_sound else ""
        lines = [
            f"the newest checkpoint from before that: {self.path}, after step {self.step}{sound}"
        ]
        if self.line is not None:
            lines.append(f"to start from it: {self.line}")
        return lines


def newest_before(process: Process, step: int) -> Restart | None:
    """The newest checkpoint of a model from before a step; None where none is on record."""
    rows = process.query(_NEWEST.format(step=step)).to_pylist()
    if not rows:
        return None
    path, command = str(rows[0]["path"]), process.status().command
    return Restart(
        path=path,
        step=int(rows[0]["step"]),
        is_sound=rows[0]["weights_finite"],
        line=_line_with(tuple(command), path),
    )


def _line_with(command: tuple[str, ...], path: str) -> str | None:
    """The command that a script was started by, without its secrets, and with a checkpoint."""
    script = next((word for word in command[1:] if word.endswith(".py")), None)
    option = None if script is None else _option_of(script)
    if option is None:
        return None
    words: list[str] = []
    skips = False
    for word in command_without_secrets(command):
        if skips:
            skips = False
        elif word == option:
            skips = True
        elif not word.startswith(f"{option}="):
            words.append(word)
    return shlex.join([*words, option, path])


def _option_of(script: str) -> str | None:
    """The one option of a script that takes a checkpoint, by its own source."""
    if not os.path.isfile(script):
        return None
    try:
        text = read_file(script, _MOST_BYTES).decode(errors="replace")
    except OSError:
        return None
    found = set(_OPTION.findall(text))
    return found.pop() if len(found) == 1 else None
