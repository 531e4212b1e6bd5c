"""Actors play by a policy in threads of their own, and a learner trains it, in the way named.

They take turns: the actors play before each step of the learner, and between its call of the
policy and its backward pass. The last line is JSON: what the learner knows of its steps, and how
often the actors have called a model. `nan` and `stuck` do not end.
"""

from __future__ import annotations

import copy
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

torch.set_num_threads(1)
CALLS, STEPS, NAN_SINCE, STUCK_AT = 3, 12, 30, 6
X, Y = torch.randn(8, 4), torch.randn(8, 1)


class Stage:
    """Where actors and learner take turns.

    Attributes:
        played: How often a model was called by an actor.
        is_over: Whether the actors may leave.
        is_stuck: Whether the next call does not return.
    """

    def __init__(self, actors: int) -> None:
        self._turns = [threading.Semaphore(0) for _ in range(actors)]
        self._has_played = threading.Semaphore(0)
        self.played = 0
        self.is_over = self.is_stuck = False

    def act(self, number: int, policy: nn.Module) -> None:
        while True:
            self._turns[number].acquire()
            if self.is_over:
                return
            with torch.no_grad():
                for _ in range(CALLS):
                    policy(X[:2])
                    self.played += 1
            self._has_played.release()

    def let_play(self) -> None:
        for turn in self._turns:
            turn.release()
        for _ in self._turns:
            self._has_played.acquire()

    def end(self) -> None:
        self.is_over = True
        for turn in self._turns:
            turn.release()


def learn(stage: Stage, model: nn.Module, way: str, told: dict[str, Any]) -> None:
    told["learner"] = threading.get_native_id()
    if way == "later":
        for _ in range(4):
            stage.let_play()
    told["before"] = stage.played
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    told["losses"] = losses = list[float]()
    while way in {"nan", "stuck"} or len(losses) < STEPS:
        stage.let_play()
        loss = (model(X) - Y).square().mean()
        stage.let_play()
        if way == "nan":
            loss = loss * (torch.nan if len(losses) >= NAN_SINCE else 1)
            time.sleep(0.01)
        if way == "stuck" and len(losses) == STUCK_AT:
            wait_for_ever(stage)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    stage.end()


def wait_for_ever(stage: Stage) -> None:
    """An actor is inside of the policy meanwhile, and does not come out."""
    stage.is_stuck = True
    stage.let_play()


def main(way: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    stage, told = Stage(actors=2 if way == "two" else 1), dict[str, Any]()
    if way != "later":
        torch.optim.SGD(model.parameters(), lr=1.0)  # there is an optimizer as they begin to play
    policy = copy.deepcopy(model) if way == "copied" else model
    if way == "two":
        policy.eval()

    def stand_still(*_: Any) -> None:
        if stage.is_stuck and threading.current_thread().name == "actor":
            print("stuck", flush=True)
            threading.Event().wait()

    model[1].register_forward_pre_hook(stand_still)
    actors = [threading.Thread(target=stage.act, args=(n, policy), name="actor") for n in (0, 1)]
    learner = threading.Thread(target=learn, args=(stage, model, way, told), name="learner")
    beside: dict[str, tuple[list[threading.Thread], Callable[[], None]]] = {
        "copied": ([learner], lambda: stage.act(0, policy)),
        "two": (actors, lambda: learn(stage, model, way, told)),
    }
    threads, here = beside.get(way, ([actors[0], learner], learner.join))
    for thread in threads:
        thread.start()
    here()
    for thread in threads:
        thread.join()
    print(json.dumps({"steps": STEPS, "played": stage.played, **told}), flush=True)


main(sys.argv[1])
