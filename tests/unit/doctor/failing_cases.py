"""Records of loops that go on though their steps fail, and of what only looks like it."""

from __future__ import annotations

from .records import Case, failing

FAILING = (
    Case("failing-calls", lambda: failing(forward=True), "likely", 40, "64 of the last 64"),
    Case("failing-calls", lambda: failing(forward=lambda n: n % 4 == 0), None),
    Case("failing-calls", lambda: failing(forward=True, training=False), None),
    Case("failing-calls", lambda: failing(backward=True), "likely", 40, "Backward passes of model"),
    Case("no-backward", failing, "possible", 40, "the last step of an optimizer is 39"),
    Case("no-backward", lambda: failing(count=0), "likely", 0, "no step has been made"),
    Case("no-backward", lambda: failing(count=0, epochs=3), "likely", 0, "no step has been made"),
    Case("no-backward", lambda: failing(epochs=3), "likely", 40),
    Case("no-backward", lambda: failing(calls=9), None),
    Case("no-backward", lambda: failing(is_evaluation=True), None),
    Case("no-backward", lambda: failing(training=False), None),
    Case("no-backward", lambda: failing(count=0, taken=0), None),  # a policy that acts
    Case("no-backward", lambda: failing(micro_batches=64), None),
    Case("unused-batches", lambda: failing(calls=0, epochs=2), "likely", 40, "2 epochs"),
    Case("unused-batches", lambda: failing(calls=0, epochs=1), None),  # skipped, as it resumes
)
