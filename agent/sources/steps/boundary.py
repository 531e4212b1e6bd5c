"""Where recording begins: never in the middle of a module call, nor in that of a training step.

Rules of this file: runs in the training threads, at module calls and optimizer steps that are not
recorded yet; a thread that is recorded costs no call of this. Reads the frames of the calling
thread only, and never their locals: to ask for those can keep tensors alive.
"""

from __future__ import annotations

import inspect
import sys
import time
from types import CodeType, FrameType
from typing import Any

from ..memory.sampler import MemorySampler
from ..shared.recording import Recording
from ..shared.thread_state import ThreadState
from ..torch_types import Module

PATIENCE_NS = 60 * 1_000_000_000
"""How long the end of an optimizer's step is waited for in a process that has an optimizer."""


class Boundary:
    """Decides from which module call on a thread is recorded.

    A start in the middle of a training waits for the end of the step in progress, which is the
    end of the next optimizer step. It does not wait where there is no optimizer, nor where one
    module is called again and again without gradients: that is inference, or evaluation. What a
    dataset calls as a DataLoader fetches a batch is neither. Without modules it begins with the
    second backward pass that is seen.

    Attributes:
        is_on: Whether threads are let in.
        optimizer_exists: Whether `has_optimizer` has found one.
    """

    def __init__(self, recording: Recording, memory: MemorySampler) -> None:
        self._torch: Any = sys.modules["torch"]
        self._recording = recording
        self._memory = memory
        module = self._torch.nn.Module
        functions = (
            inspect.unwrap(module.__call__),  # ours is in the stack of the call that it begins with
            module._call_impl,
            getattr(module, "_wrapped_call_impl", None),
        )
        self._call_codes = frozenset(getattr(function, "__code__", None) for function in functions)
        self._fetch_codes = self._call_codes | _fetching()
        self.task_id = getattr(self._torch._C, "_current_graph_task_id", lambda: -1)
        self.optimizer_exists = False
        self.is_on = False
        self._until_ns = 0
        self._evaluated = 0
        self._has_passed = False

    def begin(self, *, late: bool) -> None:
        """Let threads in; when it is late, from the next boundary on."""
        self._until_ns = time.perf_counter_ns() + PATIENCE_NS
        self._evaluated = 0
        self._has_passed = False
        self._recording.awaits_step = late
        self._recording.session += 1
        self.is_on = True

    def end(self) -> None:
        """Let nobody in any more."""
        self.is_on = False
        self._recording.session += 1

    def admit(self, module: Module, thread: ThreadState) -> bool:
        """Whether a call that seems to come from outside any module is the first to be recorded.

        Args:
            thread: A thread that is not recorded yet; it is, from now on, when the answer is yes.
        """
        recording = self._recording
        if not self.is_on or thread.is_apart:
            return False
        if recording.awaits_step and not (thread.is_agents or thread.fetches):
            self._has_passed = False
            self._show_progress(thread)
        # A batch may have been fetched since before the agent came, which only the frames tell.
        is_unseen = recording.awaits_step and not thread.fetches
        if _is_inside(sys._getframe(1), self._fetch_codes if is_unseen else self._call_codes):
            return False
        if recording.awaits_step:
            if thread.is_agents or self.task_id() != -1:  # or a backward pass calls it once more
                return False
            if not thread.fetches:
                recording.safe_points.root_called()
            if not self._begins_with(module, is_fetched=thread.fetches > 0):
                return False
            recording.awaits_step = False
        thread.session = recording.session
        return True

    def admit_step(self, thread: ThreadState) -> bool:
        """Whether the step that an optimizer has just ended counts, or ended the waiting."""
        if thread.is_agents or not self.is_on:
            return False
        if self._recording.awaits_step:
            self._show_progress(thread)
            if _is_inside(sys._getframe(1), self._call_codes):
                return False
            self._recording.awaits_step = False
        return True

    def admit_pass(self, thread: ThreadState) -> bool:
        """Whether a backward pass is recorded in a thread that has called no module so far."""
        recording = self._recording
        if not self.is_on or thread.is_apart:
            return False
        if _is_inside(sys._getframe(1), self._call_codes) or self.task_id() != -1:
            return False
        if recording.awaits_step:
            self._show_progress(thread)
            if not self._begins_with_pass():
                return False
            recording.awaits_step = False
        thread.session = recording.session
        return True

    def has_optimizer(self) -> bool:
        """Whether any optimizer has been made in this process."""
        if not self.optimizer_exists:
            # torch marks the step method of a class as its first instance is made.
            classes = [self._torch.optim.Optimizer]
            for cls in classes:
                classes.extend(cls.__subclasses__())
                if getattr(cls.step, "hooked", False):
                    self.optimizer_exists = True
                    break
        return self.optimizer_exists

    def _begins_with(self, module: Module, *, is_fetched: bool) -> bool:
        """Whether the waiting ends with a call of a root module.

        Args:
            is_fetched: Whether it is called for a batch that a DataLoader fetches.
        """
        if not self.has_optimizer() or time.perf_counter_ns() > self._until_ns:
            return True
        if is_fetched:
            return False
        if self._torch.is_grad_enabled():
            self._evaluated = 0
            return False
        # A teacher or a target network is called once in a training step, an evaluated model
        # again and again.
        is_evaluated = self._evaluated == id(module)
        self._evaluated = id(module)
        return is_evaluated

    def _begins_with_pass(self) -> bool:
        """Whether the waiting ends with a backward pass: no module was called since the last."""
        has_waited = not self.has_optimizer() or time.perf_counter_ns() > self._until_ns
        is_second, self._has_passed = self._has_passed, True
        return has_waited and is_second

    def _show_progress(self, thread: ThreadState) -> None:
        """Let `eval` see that the training moves, and in which thread."""
        self._recording.training_thread = thread.native_id
        if time.perf_counter_ns() > self._memory.due_ns:
            self._memory.sample()


def _is_inside(frame: FrameType | None, codes: frozenset[CodeType | None]) -> bool:
    """Whether something that is not recorded is in progress in a frame, by the codes it runs."""
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def _fetching() -> frozenset[CodeType | None]:
    """The codes that run as long as a DataLoader begins an epoch, or fetches a batch."""
    loading = sys.modules.get("torch.utils.data.dataloader")
    if loading is None:
        return frozenset()
    functions = loading.DataLoader.__iter__, loading._BaseDataLoaderIter.__next__
    return frozenset(getattr(inspect.unwrap(one), "__code__", None) for one in functions)
