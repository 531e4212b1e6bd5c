"""Multi-label audio tagging: spectrograms computed in a loader process, small convolutional network."""

import resource
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

CLIPS, TAGS, SAMPLES, BATCH = 2400, 12, 4096, 16
MAX_SECONDS = 600

# as on the compute nodes
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


class Clips(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(0)
        self.tags = (torch.rand(CLIPS, TAGS, generator=g) < 0.2).float()
        self.freq = 0.02 + 0.9 * torch.arange(1, TAGS + 1) / TAGS
        self.window = torch.hann_window(256)

    def __len__(self):
        return CLIPS

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        t = torch.arange(SAMPLES).float()
        phase = 6.28 * torch.rand(TAGS, 1, generator=g)
        tones = torch.sin(3.1416 * self.freq[:, None] * t + phase) * self.tags[i][:, None]
        wave = tones.sum(0) + 2.0 * torch.randn(SAMPLES, generator=g)
        spec = torch.stft(wave, 256, 128, window=self.window, return_complex=True).abs()
        return spec.clamp(min=1e-3).log()[None], self.tags[i]


def network(w=16):
    return nn.Sequential(
        nn.Conv2d(1, w, 3, 2, 1),
        nn.BatchNorm2d(w),
        nn.ReLU(),
        nn.Conv2d(w, 2 * w, 3, 2, 1),
        nn.BatchNorm2d(2 * w),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d((16, 1)),
        nn.Flatten(),
        nn.Linear(32 * w, TAGS),
    )


def average_precision(scores, labels):
    order = scores.argsort(0, descending=True)
    hits = labels.gather(0, order)
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)[:, None]
    return ((precision * hits).sum(0) / hits.sum(0).clamp(min=1)).mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        Clips(), batch_size=BATCH, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = network()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    scores, labels = [], []
    deadline, epoch = time.time() + MAX_SECONDS, 0
    while time.time() < deadline:
        for spec, tags in loader:
            logits = model(spec)
            loss = F.binary_cross_entropy_with_logits(logits, tags)
            opt.zero_grad()
            loss.backward()
            opt.step()
            scores.append(logits.detach())
            labels.append(tags)
        epoch += 1
        print(
            f"epoch {epoch} step {len(scores)} loss {loss.item():.4f} mAP {average_precision(torch.cat(scores), torch.cat(labels)):.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
