"""Two layers of bare tensors, no module, updated by hand, as a first lesson has it."""

import torch
from truth import Truth, planned

LR = 0.05

torch.manual_seed(41)
w1 = (torch.randn(256, 1024) / 16).requires_grad_()
b1 = torch.zeros(1024, requires_grad=True)
w2 = (torch.randn(1024, 256) / 32).requires_grad_()
b2 = torch.zeros(256, requires_grad=True)
truth = Truth()

for _ in range(planned(16)):
    x = torch.randn(64, 256)
    hidden = (x @ w1 + b1).relu()
    loss = (hidden @ w2 + b2 - x).square().mean()
    with truth.timed("backward"):
        loss.backward()
    with torch.no_grad():
        for tensor in (w1, b1, w2, b2):
            tensor -= LR * tensor.grad
            tensor.grad = None
    truth.step(loss.item())

truth.finish_with({"w1": w1, "b1": b1, "w2": w2, "b2": b2})
