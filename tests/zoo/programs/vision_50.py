"""Mixer on synthetic spectra, with statistics of the activations for the log."""

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(40)

BINS, FRAMES, CLASSES = 32, 24, 12


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.token = nn.Sequential(
            nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens)
        )
        self.channel = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.token(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, dim=64, depth=4):
        super().__init__()
        self.inlet = nn.Linear(BINS, dim)
        self.blocks = nn.ModuleList(MixerBlock(FRAMES, dim) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, CLASSES)

    def forward(self, spectra):
        x = self.inlet(spectra)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class ActivationReport:
    """Spread and share of large values in every block, for the next printed line."""

    def __init__(self, model):
        self.model = model
        self.values = {}

    def capture(self):
        for index, block in enumerate(self.model.blocks):
            block.register_forward_hook(self._hook(f"block{index}"))

    def _hook(self, name):
        def record(module, inputs, output):
            flat = output.detach().reshape(-1)
            part = flat[::16].sort().values
            self.values[name] = (flat.std().item(), part[int(0.99 * len(part))].item())

        return record

    def text(self):
        return " ".join(f"{spread:.2f}/{high:.2f}" for spread, high in self.values.values())


def batches(size, seed):
    generator = torch.Generator().manual_seed(seed)
    peaks = torch.randn(CLASSES, BINS, generator=generator)
    rhythm = torch.randn(CLASSES, FRAMES, generator=generator)
    while True:
        labels = torch.randint(0, CLASSES, (size,), generator=generator)
        clean = rhythm[labels][:, :, None] * peaks[labels][:, None, :]
        yield 0.3 * clean + torch.randn(size, FRAMES, BINS, generator=generator), labels


def main():
    model = Mixer()
    report = ActivationReport(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for step, (spectra, labels) in enumerate(batches(64, seed=41)):
        if step % 20 == 0:
            report.capture()
        loss = F.cross_entropy(model(spectra), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} activations {report.text()}", flush=True)


if __name__ == "__main__":
    main()
