"""The agent of this very process, by the two functions a training script may call.

Rules of this file: the way in for `import probing; probing.start()`; everything else about the
agent is in `probing.agent`, which is imported only when it is started.
"""

from __future__ import annotations

import os

from .settings import Settings


def start(**settings: object) -> None:
    """Start the agent in this process; does nothing when it is running.

    The settings come from the environment; those given here go before it.

    Args:
        **settings: Values by the names of `probing.settings.Settings`, such as
            ``listen="127.0.0.1:8080"``.

    Raises:
        BadSetting: There is no such setting, or it cannot have that value.
        ProbingError: The run directory is not safe to use.
        OSError: The run folder or the socket cannot be made.
    """
    from . import _boot
    from .agent import lifecycle
    from .settings import find, parse

    given = {find(name): value for name, value in settings.items()}
    texts = {setting.env: str(value) for setting, value in given.items()}
    for setting, value in given.items():
        parse(setting, str(value))
    lifecycle.start(Settings.from_env({**os.environ, **texts}))
    _boot.watch_for_torch()


def stop() -> None:
    """Stop the agent in this process and leave it as it was.

    What was recorded stays until the process starts another agent.
    """
    from . import _boot
    from .agent import lifecycle

    lifecycle.stop()
    _boot.forget()
