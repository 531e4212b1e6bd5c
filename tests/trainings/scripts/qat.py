"""Quantization-aware training: fake quantization of weights and activations, straight-through."""

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

torch.manual_seed(210)


class FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        return (x / scale).round().clamp(-128, 127) * scale

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class WeightQuantizer(nn.Module):
    def forward(self, weight):
        return FakeQuantize.apply(weight, weight.detach().abs().max() / 127)


class Observer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(1.0))

    def forward(self, x):
        if self.training:
            self.scale.mul_(0.9).add_(0.1 * x.detach().abs().max() / 127)
        return FakeQuantize.apply(x, self.scale)


model = nn.Sequential(
    nn.Conv2d(1, 32, 3), Observer(), nn.ReLU(), nn.Conv2d(32, 64, 3), Observer(), nn.ReLU(),
    nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10),
)  # fmt: skip
data = TensorDataset(torch.randn(256, 1, 20, 20), torch.randint(0, 10, (256,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
for module in list(model):
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        parametrize.register_parametrization(module, "weight", WeightQuantizer())
truth = Truth(model=model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=2_000_000)
step, steps = 0, planned(14)
while step < steps:
    for x, y in loader:
        optimizer.zero_grad()
        with truth.timed("forward"):
            out = model(x)
        loss = nn.functional.cross_entropy(out, y, label_smoothing=0.1)
        with truth.timed("backward"):
            loss.backward()
        lr = optimizer.param_groups[0]["lr"]
        with truth.timed("optimizer"):
            optimizer.step()
        scheduler.step()
        truth.step(loss.item(), lr=lr, samples=len(x))
        step += 1
        if step == steps:
            break

truth.finish(model)
