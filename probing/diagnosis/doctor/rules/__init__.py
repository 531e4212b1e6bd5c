"""The rules of the doctor about one process, by subject; those about ranks are in `doctor.ranks`.

Rules of this room: a module is a subject, and lists its rules as ``RULES``. A rule asks what it
needs of the `Facts` of a process, and never asks the process itself.
"""

from __future__ import annotations

from ..findings import Rule
from . import data, device, failing, machine, piling, setup, shares, speed, stops, terminated
from .memory import frozen, growth, workers
from .numbers import (
    constant_loss,
    gradients,
    learning,
    loss_inputs,
    losses,
    modes,
    unlearned,
    updates,
    warned,
)
from .numbers.not_finite import exploding
from .pace import (
    every_nth,
    long_steps,
    no_sync,
    one_parameter,
    own_code,
    piled_hooks,
    waiting_calls,
)
from .trained import parameters, wrappers

RULES: tuple[Rule, ...] = tuple(
    rule
    for room in (
        stops,
        terminated,
        failing,
        losses,
        constant_loss,
        loss_inputs,
        unlearned,
        learning,
        gradients,
        exploding,
        updates,
        warned,
        parameters,
        wrappers,
        modes,
        data,
        growth,
        frozen,
        workers,
        piling,
        speed,
        own_code,
        no_sync,
        shares,
        long_steps,
        every_nth,
        waiting_calls,
        piled_hooks,
        machine,
        device,
        setup,
        one_parameter,
    )
    for rule in room.RULES
)
"""All of them, those first that are told first where they are as grave."""
