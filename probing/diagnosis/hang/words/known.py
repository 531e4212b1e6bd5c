"""What helps against waits and errors that are known, by their words.

Rules of this file: pure; a remedy stands here only where it is right whenever the words are.
"""

from __future__ import annotations

import re

from ..evidence import Cause, Verdict

_WAITS = (
    (r"for a child process.*for room in a pipe", "Read what the child writes while it runs, by"
     " communicate(), or send its output to a file: a pipe holds 64 KiB, then the child waits."),
    (r"for a child process|for a worker process to end", "Give that wait a time limit, and end the"
     " child when it is over."),
    (r"\(input\)|for input from the terminal|prompt of the debugger", "Type its next line at the"
     " terminal of the process, `c` in a debugger, or take the breakpoint() out."),
    (r"data from a (TLS )?socket|connection to be made|TLS handshake", "Give the connection a"
     " timeout and a retry; look at whoever is at its other end."),
    (r"is seen to have the other end", "Start those processes anew that should send: they have"
     " ended, or never had that end. get(timeout=...), or poll(timeout) before recv(), tells it."),
    (r"another process to send", "Look at the process that should send: it may have ended, or wait"
     " itself. poll(timeout) before recv() tells."),
    (r"item from a queue", "Look for what fills that queue: it may have ended. get(timeout=...)"
     " tells."),
    (r"for a DataLoader worker|batch from a DataLoader", "Give the DataLoader timeout=600: then a"
     " worker that hangs is an error instead."),
    (r"waits for the device", "Look at what was put on the device before that line: it takes that"
     " long, or never ends. Started with CUDA_LAUNCH_BLOCKING=1, the script stands at the line that"
     " puts it there."),
)  # fmt: skip
_ENDS = (
    (r"\bby sys\.exit\(", "Look at what leads to that line, where the script itself gives up."),
    (r"\bBdbQuit\b", "Take the breakpoint() or pdb.set_trace() out of the script, or start it with"
     " PYTHONBREAKPOINT=0: its debugger found no terminal to ask."),
    (r"EADDRINUSE|Address already in use", "Another process has that port: end it, or give the job"
     " another one by MASTER_PORT or torchrun --rdzv-endpoint."),
    (r"No space left on device", "The disk is full: see `df -h` and `df -i`; keep fewer"
     " checkpoints."),
    (r"Too many open files", "Close what is opened, or raise the limit: ulimit -n 65536; of many"
     " tensors from workers: torch.multiprocessing.set_sharing_strategy('file_system')."),
    (r"[Bb]us error|insufficient shared memory|\(shm\)", "Shared memory is full: give the container"
     " more (docker --shm-size, ipc: host), or take fewer workers."),
    (r"device-side assert", "An index was out of range on the device, mostly a label or a token"
     " number: run once more with CUDA_LAUNCH_BLOCKING=1, and the line is right."),
    (r"backward through the graph a second time", "The loss holds on to the graph of an earlier"
     " step: detach() what is carried from step to step."),
    (r"modified by an inplace operation", "Find the operation that writes in place:"
     " torch.autograd.set_detect_anomaly(True) for one step names its forward line."),
    (r"Expected more than 1 value per channel", "The last batch has one sample: give the"
     " DataLoader drop_last=True."),
    (r"does not require grad and does not have a grad_fn", "Nothing that the loss was computed from"
     " is trained: look for no_grad(), detach(), .item() or frozen parameters on its way."),
    (r"Expected all tensors to be on the same device", "Move the batch to the device of the model:"
     " batch.to(next(model.parameters()).device)."),
    (r"DataLoader worker .* exited unexpectedly", "A worker was killed or crashed: look in `dmesg`"
     " for the OOM killer, and run once with num_workers=0 to see its own error."),
)  # fmt: skip
_FRAME = re.compile(r"^.* \([^()]*:\d+\)$")


def known_remedies(verdict: Verdict) -> list[str]:
    """Of each process that is to blame the first remedy that is known."""
    causes = [" ".join((cause.what, *plain_lines(cause))) for cause in verdict.causes]
    table = _ENDS if verdict.has_ended else _WAITS
    texts = causes or [verdict.headline]
    found = [next((say for pattern, say in table if re.search(pattern, t)), "") for t in texts]
    return list(dict.fromkeys(filter(None, found)))


def plain_lines(cause: Cause) -> list[str]:
    """The lines of evidence that are no frames of a stack."""
    return [line for line in cause.evidence if not _FRAME.match(line)]
