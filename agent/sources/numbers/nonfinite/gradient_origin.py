"""Who made the first gradient that is not finite, once a backward pass has ended.

Rules of this file: runs in the training thread, and looks at gradients of parameters only where no
gradient between two modules was wrong: that waits for their device. Tensors between two modules
belong to both, so that nothing can be said before the pass is over.
"""

from __future__ import annotations

from ...calls.names.class_names import parameters_in
from ...shared.recording import Recording
from ..gradient_tensors import gradients_of
from .bad_weights import have_finite_norms, owners_of
from .findings import Findings
from .finite import look_at
from .watched_calls import WatchedCall


class GradientOrigin:
    """Writes findings about the gradients of one backward pass."""

    def __init__(self, recording: Recording, findings: Findings) -> None:
        self._recording = recording
        self._findings = findings

    def tell(self, calls: list[WatchedCall]) -> None:
        """A backward pass has ended: who was the first to make a wrong gradient?"""
        touched = sorted((c for c in calls if c.order), key=lambda call: call.order)
        makers = [c for c in touched if c.has_out and c.grad_out is None and c.grad_in is not None]
        inner = {id(around) for maker in makers for around in maker.around()}
        makers = [maker for maker in makers if id(maker) not in inner]
        if makers:  # those that were given the same tensor cannot be told apart
            self._tell_gradients([m for m in makers if m.place == makers[0].place], touched)
        elif touched:
            self._tell_code_around(touched)
        else:
            self._look_at_parameters()

    def _tell_gradients(self, makers: list[WatchedCall], touched: list[WatchedCall]) -> None:
        """Modules were given finite gradients, and made one that is not."""
        for maker in makers:
            if maker.grad_in is not None:
                bad = maker.grad_in
                self._findings.add(maker.watched, "backward", "producer", "grad", bad, maker.shapes)
        self._tell_rest(makers, touched)

    def _tell_code_around(self, touched: list[WatchedCall]) -> None:
        """The first wrong gradient is that of an output, and no module made it."""
        first = touched[0]
        bad = first.grad_out or first.grad_in
        assert bad is not None
        for around in first.around():
            if around.has_out and around.grad_out is None:
                named = bad._replace(name=f"{bad.name} of {first.watched.name}")
                self._findings.add(around.watched, "backward", "producer", "intermediate", named)
                break
        else:
            # What is given to the outermost is given to those inside whose output it returns.
            outer = [call for call in (first, *first.around()) if call.grad_out is not None]
            given = outer[-1] if outer else first
            named = (given.grad_out or bad)._replace(name=f"output {bad.name}")
            self._findings.add(given.watched, "backward", "given", "grad", named)
            first = given
        self._tell_rest([first], touched)

    def _tell_rest(self, told: list[WatchedCall], touched: list[WatchedCall]) -> None:
        """Those that only pass on what came to them."""
        for call in touched:
            bad = call.grad_in or call.grad_out
            if call not in told and bad is not None:
                self._findings.add(call.watched, "backward", "propagator", "grad", bad)

    def _look_at_parameters(self) -> None:
        """No gradient between modules is wrong; one of a parameter may be all the same."""
        roots = self._recording.objects.roots.alive()
        owners = owners_of(self._recording, roots)
        named = {id(p): p for root in roots for p in parameters_in(root)}
        pairs, _ = gradients_of(list(named.values()))
        if not pairs:
            return
        finite = have_finite_norms([gradient for _, gradient in pairs])
        for (parameter, gradient), is_finite in reversed(list(zip(pairs, finite, strict=True))):
            watched, name = owners[id(parameter)]
            bad = None if is_finite else look_at(name, gradient)
            if bad is not None:  # the last in the model is the first of the pass
                self._findings.add(watched, "backward", "producer", "parameter", bad)
