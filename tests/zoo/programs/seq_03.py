"""Streaming sensor model with a carried state."""

import torch
from torch import nn


class StreamModel(nn.Module):
    def __init__(self, inputs=6, width=64):
        super().__init__()
        self.inputs = nn.Linear(inputs, width)
        self.cell = nn.GRUCell(width, width)
        self.outputs = nn.Linear(width, inputs)

    def forward(self, chunk, state):
        predictions = []
        for frame in chunk.unbind(1):
            state = self.cell(torch.tanh(self.inputs(frame)), state)
            predictions.append(self.outputs(state))
        return torch.stack(predictions, dim=1), state


class Sensors:
    def __init__(self, streams=16, seed=14):
        self.generator = torch.Generator().manual_seed(seed)
        self.phase = torch.rand(streams, 1, 6, generator=self.generator) * 6.28
        self.position = 0

    def next_chunk(self, length=10):
        ticks = torch.arange(self.position, self.position + length + 1).view(1, -1, 1)
        self.position += length
        clean = torch.sin(self.phase + ticks * 0.2)
        return clean + 0.02 * torch.randn(clean.shape, generator=self.generator)


def main():
    torch.manual_seed(14)
    sensors = Sensors()
    model = StreamModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    state = torch.zeros(16, 64)
    for step in range(1_000_000):
        chunk = sensors.next_chunk()
        predictions, state = model(chunk[:, :-1], state)
        loss = nn.functional.mse_loss(predictions, chunk[:, 1:])
        gradients = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        for parameter, gradient in zip(model.parameters(), gradients):
            parameter.grad = gradient
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with torch.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.data.add_(parameter.grad, alpha=-group["lr"])
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
