"""Puts a few lines of Python into a running process that was never prepared.

Reading order: `memory` finds the interpreter in the process (`elf` reads its files), `methods`
lists the ways in and tries them, `thread`, `pending` and `remote_exec` are those ways;
`layouts` knows where CPython keeps what *pending* changes; `tracing`, `machines`, `stubs`,
`spare`, `remote_call` and `victims` are what *thread* is made of; `bootstrap` is what runs there.

Rules of this folder: runs at the operator's side, standard library only; never gdb, never a
compiler. A thread is stopped for milliseconds, put back exactly as it was, and never made to
run Python code itself. Nothing in the process depends on our living on: we may be killed at any
instant. Whatever is not as expected is a refusal with its reason, found out before anything is
changed.
"""
