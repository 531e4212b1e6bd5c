"""Has a child process of `multiprocessing` end in the way that its argument names."""

from __future__ import annotations

import multiprocessing as mp
import os
import sys
from typing import Any, NoReturn

import probing

HAS_AGENT = "AGENT" in os.environ
if HAS_AGENT and __name__ != "__main__":  # in a process that is spawned, before it has a target
    probing.start()


class Failed(Exception):
    pass


def culprit(*_: object) -> NoReturn:
    raise Failed("in the child")


def forked() -> None:
    if HAS_AGENT:
        probing.start()
    culprit()


def given_up(code: int | None) -> None:
    try:
        culprit()
    except Failed:
        sys.exit(code)


class Child(mp.process.BaseProcess):
    _start_method = "spawn"

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - as the package has it
        from multiprocessing.popen_spawn_posix import Popen

        return Popen(process_obj)

    def run(self) -> None:
        culprit()


def main(way: str) -> None:
    spawn = mp.get_context("spawn")
    if way == "torch":
        from torch.multiprocessing.spawn import spawn as spawn_ranks

        spawn_ranks(culprit, nprocs=1)
    made: Any = {
        "spawn": lambda: spawn.Process(target=culprit),
        "fork": lambda: mp.get_context("fork").Process(target=forked),
        "derived": Child,
        "given up": lambda: spawn.Process(target=given_up, args=(3,)),
        "given up in peace": lambda: spawn.Process(target=given_up, args=(0,)),
        "exits": lambda: spawn.Process(target=sys.exit, args=(3,)),
        "returns": lambda: spawn.Process(target=print, args=("well",)),
    }[way]()
    made.start()
    made.join()
    print("exit code", made.exitcode)


if __name__ == "__main__":
    main(sys.argv[1])
