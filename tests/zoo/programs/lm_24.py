"""Slot filling with a small convolutional encoder."""

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(width, 2 * width, 3, padding=1)
        self.norm = nn.LayerNorm(width)

    def forward(self, hidden):
        value, gate = self.conv(hidden.transpose(1, 2)).chunk(2, dim=1)
        return self.norm(hidden + (value * torch.sigmoid(gate)).transpose(1, 2))


class SlotNet(nn.Module):
    def __init__(self, vocab=220, width=48, slots=11, depth=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.gates = nn.Sequential(*[Gate(width) for _ in range(depth)])
        self.slots = nn.Linear(width, slots)

    def forward(self, ids):
        return self.slots(self.gates(self.embed(ids)))


def utterances(generator, count=16, length=20):
    ids = torch.randint(0, 220, (count, length), generator=generator)
    return ids, (ids + ids.roll(1, dims=1) // 110) % 11


def train_step(model, optimizer, batch):
    ids, slots = batch
    logits = model(ids)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), slots.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(106)
    generator = torch.Generator().manual_seed(106)
    model = SlotNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    activities = [ProfilerActivity.CPU]
    with profile(activities=activities, record_shapes=True, with_stack=True) as profiler:
        for step in range(3000):
            loss = train_step(model, optimizer, utterances(generator))
            profiler.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss:.4f}", flush=True)
    profiler.export_chrome_trace("trace.json")


if __name__ == "__main__":
    main()
