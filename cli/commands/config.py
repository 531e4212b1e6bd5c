"""`probing ENDPOINT config [NAME=VALUE]`: the settings in force."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from ..ask.asking import show
from ..completion import complete_settings
from ..target import asked_target, attach_option, style_option, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.common import SettingsAnswer, SettingValue
    from ..terminal import Screen


@click.command("config")
@click.argument("setting", required=False, metavar="[NAME | NAME=VALUE]",
                shell_complete=complete_settings)  # fmt: skip
@target_options
@attach_option
@style_option("table", "json")
@click.pass_context
def command(context: click.Context, *, setting: str | None, style: str) -> None:
    """Show or change the settings.

    Lists them with value, source and meaning. NAME shows one; NAME=VALUE changes one that can
    change at run time.
    """
    from ...settings import find
    from ..render.process.settings import render_settings

    target = asked_target(context)
    word, assigns, value = (setting or "").partition("=")
    name = find(word.strip()).name if setting is not None else None

    def ask(process: Process) -> SettingsAnswer:
        return process.set(name, value) if name and assigns else process.settings()

    def pick(answer: SettingsAnswer) -> list[SettingValue]:
        return [s for s in answer.settings if name in (None, s.name)]

    def render(answer: SettingsAnswer, screen: Screen) -> str:
        unknown = answer.unknown if name is None else ()
        return render_settings(pick(answer), unknown, width=screen.width, color=screen.color)

    def plain(answer: SettingsAnswer) -> list[dict[str, Any]]:
        return [dataclasses.asdict(setting) for setting in pick(answer)]

    context.exit(show(target, style, ask, render, plain))
