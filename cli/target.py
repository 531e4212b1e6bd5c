"""Whom a command asks: the endpoints, the time limit and the token.

Rules of this file: the options that say so are declared once and taken in any place, before the
command and after it; a command reads them as one frozen `Target`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import ProbingError, UsageError
from ..messages.frozen import dataclass
from .completion import complete_endpoint_option
from .options import is_overruled, together, verbosity_options
from .output import terminal
from .preferences import endpoints_named

if TYPE_CHECKING:
    from ..client.base import Process

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_TIMEOUT_S = 30.0
FINDING_S = 5.0
"""How long the processes that an endpoint stands for are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom to ask, and how long.

    Attributes:
        endpoints: The user's, those for which a name of the settings file stands among them.
        typed: As the user wrote them.
        timeout_s: The limit the user gave, or None.
        token: The token of TCP requests read from ``--token-file``, or None.
        token_file: What that is called.
        attaches: Whether a process without an agent gets one first.
        changes: The name of a command that changes what it asks; None for one that looks.
    """

    endpoints: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    timeout_s: float | None = None
    token: str | None = None
    token_file: str | None = None
    attaches: bool = False
    changes: str | None = None

    @classmethod
    def of(cls, context: click.Context) -> Target:
        """What the options read so far say."""
        found = context.obj
        return found if isinstance(found, cls) else cls()

    @property
    def words(self) -> str:
        """The endpoints as they can be typed before any command."""
        return " ".join(f"-t {shlex.quote(word)}" for word in self.typed or self.endpoints)

    @property
    def limit_s(self) -> float:
        """The time limit in force."""
        return DEFAULT_TIMEOUT_S if self.timeout_s is None else self.timeout_s

    @property
    def is_single(self) -> bool:
        """Whether one endpoint is asked that names one process."""
        return len(self.endpoints) == 1 and not self.has_many

    @property
    def has_many(self) -> bool:
        """Whether one of the endpoints stands for several processes."""
        limit_s = min(FINDING_S, self.limit_s)
        return any(_stands_for_many(word, self.token, limit_s) for word in self.endpoints)

    def connect(self, endpoint: str) -> Process:
        """The process at an endpoint.

        Raises:
            ProbingError: It cannot be reached, or attached to where that was asked for.
        """
        from ..client.connecting import connect

        if self.attaches:
            from .render.process.attached import render_attached

            attached = connect(endpoint, token=self.token, timeout_s=self.limit_s).attach()
            if attached.method is not None:
                terminal.note(render_attached(attached))
        return connect(endpoint, token=self.token, timeout_s=self.limit_s)


@functools.cache
def _stands_for_many(word: str, token: str | None, timeout_s: float) -> bool:
    """Whether an endpoint can be several processes.

    At host:port there may be a node server, and only it can tell; it is asked once.
    """
    from ..cluster.job.forms import is_address, names_many

    if not is_address(word):
        return names_many(word)
    from ..cluster.job.providers.addresses import members_at
    from ..rundir.folders import from_env

    try:
        members = members_at(word, from_env(), token=token, timeout_s=timeout_s)
    except ProbingError:  # the command will meet it again, and tell
        return False
    return any(member.via is not None for member in members)


def asked_target(context: click.Context) -> Target:
    """The target of a command that cannot do without one.

    Raises:
        UsageError: No endpoint was named.
    """
    target = Target.of(context)
    if not target.endpoints:
        name = context.command_path.partition(" ")[2]
        takes_one = any(param.name == "endpoint" for param in context.command.params)
        how = f"{name} PID" if takes_one else f"ENDPOINT {name} ..."
        raise UsageError(
            f"{name} needs an endpoint: `probing {how}`.",
            help="`probing list` shows the processes there are.",
        )
    return target


def changed_target(context: click.Context) -> Target:
    """The target of a command that changes it: one endpoint may not mean unrelated processes.

    Raises:
        UsageError: No endpoint was named.
    """
    name = context.command_path.partition(" ")[2].partition(" ")[0]
    return dataclasses.replace(asked_target(context), changes=name)


def target_with(context: click.Context, endpoint: str | None) -> Target:
    """The target of a command that also takes its endpoint as an argument.

    Raises:
        UsageError: No endpoint was named.
    """
    if endpoint is not None:
        _add_endpoints(context, None, (endpoint,))
    return asked_target(context)


def refuse_target(context: click.Context) -> None:
    """Make sure that no endpoint was named for a command that asks none.

    Raises:
        UsageError: One was.
    """
    target = Target.of(context)
    if target.endpoints:
        name = context.command_path.partition(" ")[2]
        raise UsageError(
            f"{name} takes no endpoint, but {target.endpoints[0]} was given.",
            help=f"`probing {name} --help` shows how it is used.",
        )


def _add_endpoints(ctx: click.Context, _: click.Parameter | None, value: tuple[str, ...]) -> None:
    target = Target.of(ctx)
    known = value if ctx.resilient_parsing else [w for each in value for w in endpoints_named(each)]
    ctx.obj = target = dataclasses.replace(
        target, endpoints=(*target.endpoints, *known), typed=(*target.typed, *value)
    )
    if target.typed and not ctx.resilient_parsing:
        words = target.typed
        terminal.ways.asked = shlex.quote(words[0]) if len(words) == 1 else target.words


def _set_timeout(ctx: click.Context, parameter: click.Parameter, value: float | None) -> None:
    if value is None or is_overruled(ctx, parameter):
        return
    if math.isnan(value):
        raise click.BadParameter("it must be a number of seconds.")
    ctx.obj = dataclasses.replace(Target.of(ctx), timeout_s=min(value, _LONGEST_S))


def _set_attaches(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value:
        ctx.obj = dataclasses.replace(Target.of(ctx), attaches=True)


def _read_token(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is None or ctx.resilient_parsing or is_overruled(ctx, parameter):
        return
    try:
        token = Path(value).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot read the token file {value}: {reason}.") from None
    ctx.obj = dataclasses.replace(Target.of(ctx), token=token, token_file=value)


def _set_variable(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Say it where all that is asked under this command finds it, processes of its own, too."""
    if value is None or ctx.resilient_parsing or is_overruled(ctx, parameter):
        return
    if parameter.name == "tls_fingerprint":
        from ..reach.trust import read_fingerprint

        read_fingerprint(value)
    os.environ[f"PROBING_{parameter.name}".upper()] = value


_LONGEST_S = 10_000_000.0
"""What the kernel's timers and those of other machines can count to, in place of without an end."""
_ENDPOINT_OPTION = click.option(
    "-t",
    "--target",
    multiple=True,
    metavar="ENDPOINT",
    expose_value=False,
    callback=_add_endpoints,
    shell_complete=complete_endpoint_option,
    help="A process to ask; may be given several times.",
)
_TIMEOUT_OPTION = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    expose_value=False,
    callback=_set_timeout,
    help=f"How long an answer may take.  [default: {DEFAULT_TIMEOUT_S:g}; some commands differ]",
)
_TOKEN_OPTION = click.option(
    "--token-file",
    metavar="FILE",
    expose_value=False,
    callback=_read_token,
    help="The file that holds the token of TCP endpoints; else PROBING_TOKEN is used.",
)
_TLS_OPTIONS = (
    click.option(
        "--tls-fingerprint",
        metavar="SHA256",
        expose_value=False,
        callback=_set_variable,
        help="The only certificate that is trusted; the same as PROBING_TLS_FINGERPRINT.",
    ),
    click.option(
        "--tls-ca",
        metavar="FILE",
        expose_value=False,
        callback=_set_variable,
        help="Certificates of authorities or servers that are trusted; the same as PROBING_TLS_CA.",
    ),
)
attach_option = click.option(
    "--attach",
    is_flag=True,
    expose_value=False,
    callback=_set_attaches,
    help="Put the agent into a process that has none first, as `probing attach` does.",
)
"""The option ``--attach``, stored in the context's `Target`."""
target_options = together(
    _ENDPOINT_OPTION, _TIMEOUT_OPTION, _TOKEN_OPTION, *reversed(_TLS_OPTIONS), verbosity_options
)
"""The options that say whom to ask, stored in the context's `Target` or the environment."""
