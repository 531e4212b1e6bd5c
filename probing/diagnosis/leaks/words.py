"""What each mistake is called, and what to write in the code instead.

Rules of this file: words only; ``{name}`` stands for the collection that grows.
"""

from __future__ import annotations

import re

TITLES = {
    "loss": "a loss is kept with its autograd graph",
    "outputs": "outputs are kept with their autograd graph",
    "graph": "autograd graphs are kept alive",
    "numbers": "numbers are kept as tensors",
    "tensors": "tensors are kept",
    "batches": "batches of data are kept",
    "modules": "modules are added at each step",
    "optimizer": "state of the optimizer is added at each step",
    "first_gradients": "parameters have a gradient for the first time",
    "hooks": "hooks are registered again and again",
    "descriptors": "descriptors are opened and not closed",
    "threads": "threads are started and do not end",
    "items": "a collection of Python grows",
    "workers": "worker processes grow: what a data set or its collate function keeps",
    "traceback": "exceptions are kept with their traceback",
    "cycle": "tensors are in reference cycles that nothing but the garbage collector frees",
    "bounded": "a collection with a limit is filling",
    "graph_pools": "CUDA graphs are captured again and again, each with memory of its own",
    "zero_grad": "gradients add up over the steps: they are never zeroed",
}
"""By the name of the mistake."""

WAYS_OUT = {
    "loss": "keep the number: `{name}.append(loss.item())`; or `loss.detach().clone()`, which"
    " does not wait for the device",
    "outputs": "keep `output.detach().cpu()`, or only the figure that is computed from it",
    "graph": "look for a tensor that is kept without `.detach()`, for `retain_graph=True`, and for"
    " losses whose `backward()` is never called",
    "numbers": "keep Python numbers: `{name}.append(value.item())`",
    "tensors": "let go of them: remove old ones from `{name}`, or keep them in a"
    " `collections.deque(maxlen=...)`",
    "batches": "keep the indices of the samples, or copies of the few that are needed, not every"
    " batch",
    "modules": "make modules once, before the loop, and give them to the optimizer once",
    "optimizer": "call `add_param_group` once per parameter; make the optimizer before the loop",
    "first_gradients": "nothing: it ends once each parameter has had one, as each expert of a"
    " mixture has once it was chosen",
    "hooks": "register the hook once, before the loop; or keep the handle and call"
    " `handle.remove()`",
    "descriptors": "close what is opened: `with open(...) as file:`, `connection.close()`",
    "threads": "end them (`join()`), or start them once: `ThreadPoolExecutor(max_workers=...)`"
    " before the loop",
    "items": "let go of old items of `{name}`, or bound it: `collections.deque(maxlen=...)`,"
    " `functools.lru_cache(maxsize=...)`",
    "workers": "look at what `__getitem__`, a transform or `collate_fn` adds to an attribute or a"
    " global variable: each worker has its own copy, and keeps it for as long as it lives",
    "traceback": "keep `repr(error)` instead of the exception, or call"
    " `traceback.clear_frames(error.__traceback__)`",
    "cycle": "break the cycle, often `self.x = tensor` on an object that refers to itself, with"
    " `weakref`; `gc.collect()` frees what is there",
    "bounded": "nothing: it stops growing once it is full",
    "graph_pools": "capture once per shape: pad batches to a few sizes, or compile without"
    " mode='reduce-overhead' where shapes vary (`torch._logging.set_logs(recompiles=True)` tells"
    " why); give graphs of one's own a common `pool=torch.cuda.graph_pool_handle()`",
    "zero_grad": "call `optimizer.zero_grad()` once after each `optimizer.step()`; if they are to"
    " add up over all steps, ignore this",
}
"""By the name of the mistake."""


RESIDENT = "resident set"
"""The series of a process without an accelerator."""
SERIES = {
    "allocated": "what torch's allocator has given out",
    "reserved, not allocated": "what torch's allocator holds and has not given out",
    "outside of torch": "what is in use outside of torch's allocator",
    RESIDENT: "the resident set",
}
"""By the name of a series: what it is, as the subject or the object of a sentence."""
SERIES_WAYS_OUT = {
    "allocated": "watch more steps with --steps: what is kept now and then takes more of them",
    "reserved, not allocated": "it is in pieces too small to be used: start with"
    " PYTORCH_ALLOC_CONF=expandable_segments:True (in older versions of torch"
    " PYTORCH_CUDA_ALLOC_CONF), or keep shapes from changing",
    "outside of torch": "look at other processes on the device, NCCL, CUDA graphs and libraries"
    " with memory of their own",
    RESIDENT: "memory of the process outside of tensors: look at lists and dictionaries of"
    " the script, the data pipeline and native libraries",
}
"""By the name of a series that grows while no tensor is kept: where to look."""


def series_words(name: str, device: str | None) -> str:
    """What a series is and where: `what torch's allocator has given out on cuda:0`."""
    return SERIES[name] + (f" on {device}" if device else "")


def variable_of(path: str | None) -> str:
    """The collection at the end of a path, such as `self.losses` of `self.losses[...]`."""
    name = re.sub(r"(\[\.\.\.\])+$", "", path or "")
    return name or "the collection"
