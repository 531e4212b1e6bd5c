"""`probing ENDPOINT act NAME ...`: change something in the running training."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from ...errors import UsageError
from ..ask.replies import show
from ..command import AskGroup
from ..options import limit_option, style_option
from ..target import asked_target, attach_option, changed_target, target_options

if TYPE_CHECKING:
    from ...messages.about.act import Asked


_optimizer_option = click.option(
    "--optimizer", metavar="NAME",
    help="Only this name or number, as in python.optimizers; else all.",
)  # fmt: skip
_model_option = click.option(
    "--model", metavar="NAME", help="Which model, where there are several."
)


@click.group("act", cls=AskGroup, no_args_is_help=False)
@target_options
@attach_option
def command() -> None:
    """Change something in the running training, safely.

    The training thread applies each action between two steps, whole or not at all; the answer says
    what changed, from what, and how long the training paused. When no step ends within --timeout,
    nothing is changed. Ranks of one job apply it at the same step, all or none. What is in force,
    such as clipping, ends when the agent leaves. python.actions keeps all of them.
    """


@command.command("lr")
@target_options
@click.argument("value", type=click.FloatRange(min=0), metavar="[RATE]", required=False)
@click.option("--scale", type=float, metavar="FACTOR", help="Multiply every rate by it instead.")
@click.option(
    "--hold", is_flag=True,
    help="Put it in place before every optimizer step, and the script's own back after it.",
)  # fmt: skip
@_optimizer_option
@style_option("text", "json")
@click.pass_context
def lr(
    context: click.Context,
    *,
    value: float | None,
    scale: float | None,
    hold: bool,
    optimizer: str | None,
    style: str,
) -> None:
    """Set or scale the learning rate of every optimizer so that it stays.

    The schedulers' base rates change with it. A script that sets the rate itself at each step is
    found out at the next two steps; --hold overrides it. Undone, the rate is what it would be by
    now; one that the script has overwritten is left.
    """
    from ...messages.about.act import Lr

    if (value is None) == (scale is None):
        raise UsageError("say a rate or --scale: `act lr 1e-5` or `act lr --scale 0.1`.")
    _act(context, Lr(value=value, scale=scale, hold=hold, optimizer=optimizer), style)


@command.command("clip")
@target_options
@click.argument("max_norm", metavar="NORM|off")
@_optimizer_option
@style_option("text", "json")
@click.pass_context
def clip(context: click.Context, *, max_norm: str, optimizer: str | None, style: str) -> None:
    """Clip the norm of all gradients before every optimizer step, from now on.

    With a gradient scaler, that of the unscaled gradients. Gradients that are not finite are left
    as they are.
    """
    from ...messages.about.act import Clip

    try:
        limit = None if max_norm == "off" else float(max_norm)
    except ValueError:
        raise UsageError(f"{max_norm!r} is neither a norm nor off.") from None
    _act(context, Clip(max_norm=limit, optimizer=optimizer), style)


@command.command("checkpoint")
@target_options
@click.argument("path")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option(
    "--async", "copy_first", is_flag=True,
    help="Let the training go on once everything is copied, and write then.",
)  # fmt: skip
@style_option("text", "json")
@click.pass_context
def checkpoint(
    context: click.Context, *, path: str, force: bool, copy_first: bool, style: str
) -> None:
    """Write a checkpoint that is of one step, whole, and read back.

    It holds models, optimizers, schedulers, gradient scaler, random number generators, the step and
    the batches given. A relative PATH is of the process's working directory. The file appears when
    it is complete and read back by torch.load(weights_only=True).

    Under DDP rank 0 writes. A sharded training (FSDP, DeepSpeed, tensor parallelism) is refused.
    """
    from ...messages.about.act import Checkpoint

    _act(context, Checkpoint(path=path, force=force, copy_first=copy_first), style)


@command.command("cleanup")
@target_options
@style_option("text", "json")
@click.pass_context
def cleanup(context: click.Context, *, style: str) -> None:
    """Collect garbage, and empty the accelerator's caches.

    Says what each of these has freed. The training pauses for as long as Python's garbage collector
    takes. Gradients are left, since the script may still use them.
    """
    from ...messages.about.act import Cleanup

    _act(context, Cleanup(), style)


@command.command("nan-guard")
@target_options
@click.argument("do", type=click.Choice(("warn", "skip", "raise", "off")))
@click.option(
    "--consecutive", type=click.IntRange(min=1), metavar="N",
    help="With raise, raise at the N-th bad step in a row [1]; else from the N-th on, `status`"
    " advises to go back to a checkpoint [10].",
)  # fmt: skip
@_optimizer_option
@style_option("text", "json")
@click.pass_context
def nan_guard(
    context: click.Context, *, do: str, consecutive: int | None, optimizer: str | None, style: str
) -> None:
    """Look at loss and gradients before every optimizer step, for NaN and infinity.

    warn writes a row of python.nan_steps. skip also skips the step and zeroes the gradients. raise
    raises probing.nan_guard.NonFiniteStep in the training; with --consecutive it skips those
    before. `status` counts. It waits for the device once per step.

    Steps skipped by a gradient scaler do not come here. Under DDP all ranks must be asked by one
    command; skip is refused where each rank has a part of the gradients.
    """
    from ...messages.about.act import NanGuard

    _act(context, NanGuard(do=do, consecutive=consecutive, optimizer=optimizer), style)


@command.command("keep-layers")
@target_options
@click.argument("count", type=click.IntRange(min=1), metavar="N")
@click.option("--in", "inside", metavar="NAME", help="The container of the blocks, by its name.")
@_model_option
@style_option("text", "json")
@click.pass_context
def keep_layers(
    context: click.Context, *, count: int, inside: str | None, model: str | None, style: str
) -> None:
    """Run only the first N of the model's repeated blocks, to debug the rest faster.

    Blocks are consecutive modules of one class in a ModuleList or Sequential. The others return a
    copy of their input, refused unless a step showed equal shapes. Their parameters get no
    gradient, so torch's optimizers leave them.
    """
    from ...messages.about.act import KeepLayers

    _act(context, KeepLayers(count=count, inside=inside, model=model), style)


@command.command("skip-attention")
@target_options
@click.option(
    "--except", "keep", type=click.Choice(["last", "first", "none"]), default="last",
    show_default=True, help="Which one still runs.",
)  # fmt: skip
@click.option("--in", "inside", metavar="NAME", help="Only what is in the module of that name.")
@_model_option
@style_option("text", "json")
@click.pass_context
def skip_attention(
    context: click.Context, *, keep: str, inside: str | None, model: str | None, style: str
) -> None:
    """Have every attention but one give back a copy of its input.

    What follows computes with meaningless values of the right shape, connected to the graph.
    Refused, and undone, as keep-layers is.
    """
    from ...messages.about.act import SkipAttention

    _act(context, SkipAttention(keep=keep, inside=inside, model=model), style)


@command.command("run")
@target_options
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[PARAMETER=VALUE]...")
@style_option("text", "json")
@click.pass_context
def run(context: click.Context, *, name: str, arguments: tuple[str, ...], style: str) -> None:
    """Do what a plugin of the training's has added.

    It runs in the training thread between two steps; what it takes and whether it can fail half
    done, its plugin knows.
    """
    from ...messages.about.act import Run

    _act(context, Run(name=name, arguments=arguments), style)


@command.command("undo")
@target_options
@click.argument("number", type=click.IntRange(min=1), metavar="[ID]", required=False)
@click.option("--alone", is_flag=True, help="Also what all ranks of a job have applied together.")
@style_option("text", "json")
@click.pass_context
def undo(context: click.Context, *, number: int | None, alone: bool, style: str) -> None:
    """Take back an action: the last that can be, or that of the number."""
    from ...messages.about.act import Undo

    _act(context, Undo(number=number, alone=alone), style)


@command.command("list")
@target_options
@limit_option("How many of the last actions to show", default=0, shown="all")
@style_option("text", "json")
@click.pass_context
def list_(context: click.Context, *, limit: int, style: str) -> None:
    """Show the last actions, what is in force, and what can be undone."""
    from ..render.process.actions import render_acts

    code = show(
        asked_target(context),
        style,
        lambda process: process.acts(),
        lambda answer, screen: render_acts(answer.acts[-limit:], width=screen.width),
        lambda answer: dataclasses.asdict(answer)["acts"][-limit:],
    )
    context.exit(code)


def _act(context: click.Context, asked: Asked, style: str) -> None:
    """Have it applied, and say what came of it."""
    from ..ask.applying import act_on

    context.exit(act_on(changed_target(context), asked, as_json=style == "json"))
