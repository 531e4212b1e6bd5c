"""Brings the agent into this process once it imports torch.

Rules of this file: runs at interpreter start, before anything of the user's, in every Python
process that inherits PROBING=1; so it imports next to nothing, decides quickly, never raises
and never prints. It may be called any number of times. Helper processes are left alone:
resource trackers, fork servers, compile workers, launchers, and the daemonic children of
multiprocessing (DataLoader workers, pools).
"""

from __future__ import annotations

import os
import sys

from .safety import off_switch

TYPE_CHECKING = False  # `typing` is not worth importing at the start of every interpreter
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any

_HELPER_CODE = ("multiprocessing.resource_tracker", "multiprocessing.semaphore_tracker")
_CHILD_CODE = ("multiprocessing.spawn", "multiprocessing.forkserver")
_HELPER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.elastic",
    "torch._inductor.compile_worker",
    "accelerate.commands",
    "deepspeed.launcher",
    "pip",
    "ensurepip",
    "venv",
)
_HELPER_SCRIPTS = ("torchrun", "accelerate", "deepspeed", "pip", "probing")

_boot: _Boot | None = None


class _Boot:
    """Waits for torch, and for multiprocessing to say what kind of child this is.

    Attributes:
        everywhere: Whether to start without torch, too.
        held: True in a child of multiprocessing until it is known not to be daemonic.
    """

    def __init__(self, *, everywhere: bool, held: bool) -> None:
        self.everywhere = everywhere
        self.held = held

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As a finder in front of all others: see torch coming, and hear when it has come."""
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader: Any) -> None:
        """Have the loader tell when it has run the module; the loader stays what it is."""
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            self.torch_came()

        exec_module.__code__ = _unseen(exec_module.__code__)
        try:
            loader.exec_module = exec_module
        except AttributeError:
            return

    def torch_came(self) -> None:
        """Hear that torch has been imported, whole."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if not self.held:
            _start_agent()

    def forked(self) -> None:
        """Called in a child that multiprocessing has forked from a process with an agent."""
        from multiprocessing import process

        self.child_began(is_daemon=process.current_process().daemon)

    def child_began(self, *, is_daemon: bool) -> None:
        """A child of multiprocessing begins its work; a daemonic one is a helper."""
        if is_daemon:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            return
        self.held = False
        if self.everywhere or "torch" in sys.modules:
            _start_agent()


def _unseen(code: CodeType) -> CodeType:
    """The same code, which Python leaves out of tracebacks as it does its own import system.

    Python knows the frames that stand between an import and the module by these two names. A frame
    of ours between them would also make it show its own, where torch cannot be imported.
    """
    return code.replace(
        co_filename="<frozen importlib._bootstrap_external>", co_name="_call_with_frames_removed"
    )


def start() -> None:
    """The start-up hook: see the module's rules."""
    if _boot is not None or not off_switch.is_wanted(os.environ):
        return
    mode = os.environ["PROBING"].strip().lower()
    command = getattr(sys, "orig_argv", [])
    if _is_helper(command):
        return
    try:
        watch(everywhere=mode == "all", held=_is_multiprocessing_child(command))
    except Exception:  # noqa: BLE001 - never harm the host
        return


def watch(*, everywhere: bool, held: bool) -> None:
    """Start the agent when it is time: now, when torch comes, or when a child begins."""
    global _boot  # noqa: PLW0603 - one per process, as the process's start is
    boot = _boot = _Boot(everywhere=everywhere, held=held)
    if held:
        _hear_bootstrap(boot)
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, boot)
    elif not held:
        _start_agent()
        return
    if everywhere and not held:
        _start_agent()


def watch_for_torch() -> None:
    """The agent runs already: have it record once torch is there, now or later."""
    if _boot is None:
        watch(everywhere=True, held=False)
    else:
        _boot.held = False
        if "torch" in sys.modules:
            _start_agent()


def forget() -> None:
    """Stop waiting for torch."""
    global _boot  # noqa: PLW0603 - one per process, as the process's start is
    if _boot is not None and _boot in sys.meta_path:
        sys.meta_path.remove(_boot)
    _boot = None


def _start_agent() -> None:
    """Start the agent, or let it begin to record; a failure of it is not the host's.

    Meanwhile the garbage collector waits. torch has just made a few hundred thousand objects, and
    the next few thousand, ours, would have it look through them all: 80 ms for nothing.
    """
    import gc

    collects = gc.isenabled()
    gc.disable()
    try:
        if _is_left_alone():
            return
        from probing.agent import lifecycle
        from probing.agent.leaving import Arrival
        from probing.settings import Settings

        agent = lifecycle.current()
        if agent is None:
            settings = Settings.from_env(os.environ)
            if lifecycle.is_answered_for(settings):  # every sub-interpreter runs the hook, too
                return
            lifecycle.start(settings, Arrival(is_early=True, forget=forget))
            _watch_children()
        else:
            agent.await_use()
    except Exception:  # noqa: BLE001 - never harm the host
        report()
    finally:
        if collects:
            gc.enable()


def _is_left_alone() -> bool:
    """Whether this is a daemonic child of multiprocessing that has not started an agent itself.

    One that was forked before there was an agent, or before it was known whether there would be
    one, has nobody who tells it so.
    """
    ask = getattr(sys.modules.get("multiprocessing.process"), "current_process", None)
    if ask is None or not ask().daemon:
        return False
    lifecycle = sys.modules.get("probing.agent.lifecycle")
    return lifecycle is None or lifecycle.current() is None


def _hear_bootstrap(boot: _Boot) -> None:
    """Hear when this child, spawned by multiprocessing, has learnt what it is to run.

    Only then is it known whether it is daemonic. multiprocessing offers no hook for it in a
    spawned child, so the one method that all of them begin with is replaced, until it is called.
    """
    from multiprocessing.process import BaseProcess

    bootstrap: Any = BaseProcess._bootstrap  # type: ignore[attr-defined]  # noqa: SLF001

    def begin(self: BaseProcess, *args: object, **kwargs: object) -> object:
        BaseProcess._bootstrap = bootstrap  # type: ignore[attr-defined]  # noqa: SLF001
        boot.child_began(is_daemon=self.daemon)
        return bootstrap(self, *args, **kwargs)

    BaseProcess._bootstrap = begin  # type: ignore[attr-defined]  # noqa: SLF001


def _watch_children() -> None:
    """Hear when a child that multiprocessing forked from here begins its work."""
    from multiprocessing import util

    if _boot is not None:
        util.register_after_fork(_boot, _Boot.forked)


def report(*, home: str = "") -> None:
    """Leave word of a start that failed, where `probing list` looks; never raise."""
    try:
        from probing.agent import lifecycle

        lifecycle.report_failed_start(home=home)
    except Exception:  # noqa: BLE001 - never harm the host
        return


def _is_helper(command: list[str]) -> bool:
    """Whether this process only serves others."""
    option, word = off_switch.program_of(command)
    if option == "c":
        return any(name in word for name in _HELPER_CODE)
    if option == "m":
        return any(word == m or word.startswith(m + ".") for m in _HELPER_MODULES)
    return os.path.basename(word) in _HELPER_SCRIPTS or "compile_worker" in word


def _is_multiprocessing_child(command: list[str]) -> bool:
    """Whether multiprocessing started this process by spawn or as a fork server."""
    option, code = off_switch.program_of(command)
    return option == "c" and any(name in code for name in _CHILD_CODE)
