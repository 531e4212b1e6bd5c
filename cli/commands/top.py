"""`probing top`: a live screen of processes and of the ranks of jobs."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING

import click

from ..command import AskCommand
from ..output import terminal
from ..target import Target, target_options, target_with

if TYPE_CHECKING:
    from ..live.full_screen import FullScreen
    from ..live.looking import Looking
    from ..live.view import View

_WAIT_S = 3600.0
"""A screen without keys and looks stays as it is."""


@click.command("top", cls=AskCommand)
@click.argument("endpoint", required=False)
@target_options
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=1.0, show_default=True, metavar="SECONDS",
    help="How often to look; less often where it would take 2 % of a processor.",
)  # fmt: skip
@click.pass_context
def command(context: click.Context, *, endpoint: str | None, every: float) -> None:
    """Show a live screen: step, speed, phases, loss, memory and waits of every rank.

    Without an endpoint, of all processes of this machine. Keys, which `?` explains: choose one and
    look at it (enter), see where its threads are (b), sort (s), filter (/), pause (space), copy the
    command that shows the same (c), quit (q).

    Everything comes from the record and from the kernel, as in `probing ENDPOINT`; only `b` asks
    the process. It looks every second, or less often: for itself it takes less than 2 % of a
    processor.
    """
    if endpoint is None and not Target.of(context).endpoints:
        context.obj = dataclasses.replace(Target.of(context), endpoints=("all",))
    target = target_with(context, endpoint)
    from ..live.full_screen import FullScreen, check_terminal
    from ..live.looking import Looking
    from ..live.view import View

    check_terminal()
    terminal.go_live()
    with FullScreen() as screen:
        screen.show(["looking for the processes ..."])
        looking = Looking(target, every_s=every, tell=screen.wake)
        view = View(asked=_asked(target))
        _choose_single(target, looking, view)
        looking.begin()
        _run(screen, looking, view)
    if screen.is_interrupted:
        raise KeyboardInterrupt


def _asked(target: Target) -> str:
    """What is typed for the same processes before any command."""
    return shlex.quote(target.typed[0]) if target.is_single and target.typed else target.words


def _choose_single(target: Target, looking: Looking, view: View) -> None:
    """Begin with the process itself where one alone is asked."""
    grid = looking.sight.grid
    if target.is_single and grid is not None and len(grid.cells) == 1:
        view.chosen, view.mode = grid.cells[0].endpoint, "one"
        _do("one", looking, view)


def _run(screen: FullScreen, looking: Looking, view: View) -> None:
    """Draw what is seen and do what keys say, until one says to end."""
    color = terminal.screen().color
    while not screen.is_interrupted:
        columns, lines = screen.size
        screen.show(view.frame(looking.sight, columns=columns, lines=lines, color=color))
        for key in screen.keys(_WAIT_S):
            wish = view.press(key, looking.sight)
            if wish == "quit":
                return
            if wish == "copy":
                text = view.command(looking.sight)
                screen.copy(text)
                view.told = f"copied, where the terminal takes it: {text}"
            elif wish is not None:
                _do(wish, looking, view)


def _do(wish: str, looking: Looking, view: View) -> None:
    """Have the looks do what is wished for."""
    from ..live.view import named

    who = named(view.chosen, looking.sight) if view.chosen is not None else None
    if wish == "pause":
        looking.is_paused = view.is_paused
        looking.poke()
    elif wish == "renew":
        looking.renew()
    elif wish == "all":
        looking.choose(None)
    elif wish in ("one", "stack"):
        looking.choose(who)
        if wish == "stack":
            looking.ask_stack()
