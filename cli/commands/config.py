"""`probing ENDPOINT config [NAME=VALUE]`: the settings in force."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from ..ask.replies import show
from ..command import AskCommand
from ..completion import complete_settings
from ..options import limit_option, style_option, watch_option
from ..output import terminal
from ..target import asked_target, attach_option, changed_target, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.common import SettingsAnswer, SettingValue
    from ..output.terminal import Screen

_OTHER_LINES = 4


@click.command("config", cls=AskCommand)
@click.argument("setting", required=False, metavar="[NAME | NAME=VALUE]",
                shell_complete=complete_settings)  # fmt: skip
@target_options
@attach_option
@limit_option("How many settings to show", default=None, shown="what fits the screen")
@watch_option()
@style_option("table", "json")
@click.pass_context
def command(context: click.Context, *, setting: str | None, limit: int | None, style: str) -> None:
    """Show or change the settings.

    Lists them with value and source; -v also with their meaning. NAME shows one; NAME=VALUE changes
    one that can change at run time.
    """
    from ...settings import find
    from ..render.process.settings import render_settings

    word, assigns, value = (setting or "").partition("=")
    target = changed_target(context) if assigns else asked_target(context)
    name = find(word.strip()).name if setting is not None else None

    def ask(process: Process) -> SettingsAnswer:
        return process.set(name, value) if name and assigns else process.settings()

    def pick(answer: SettingsAnswer) -> list[SettingValue]:
        return [s for s in answer.settings if name in (None, s.name)]

    def render(answer: SettingsAnswer, screen: Screen) -> str:
        unknown = answer.unknown if name is None else ()
        is_whole = name is not None or terminal.ways.verbose
        fitting = 0 if is_whole else screen.rows_beside(_OTHER_LINES + len(unknown))
        return render_settings(
            pick(answer),
            unknown,
            width=screen.width,
            color=screen.color,
            most=fitting if limit is None else limit,
            is_whole=is_whole,
        )

    def plain(answer: SettingsAnswer) -> list[dict[str, Any]]:
        return [dataclasses.asdict(setting) for setting in pick(answer)[: limit or None]]

    context.exit(show(target, style, ask, render, plain))
