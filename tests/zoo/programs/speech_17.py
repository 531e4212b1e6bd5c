"""Keyword spotting: log spectrograms of short clips, a small 2-D conv net."""

import functools
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(9)
random.seed(9)
torch.set_num_threads(1)

RATE, SECONDS, KEYWORDS, CLIPS = 8000, 1.5, 10, 600
WINDOW = int(RATE * 0.8)
HANN = torch.hann_window(256)


def synthesise():
    g = torch.Generator().manual_seed(31)
    t = torch.arange(int(RATE * SECONDS)) / RATE
    clips, labels = [], []
    for n in range(CLIPS):
        k = n % KEYWORDS
        f0 = 220 * 1.25**k * (1 + 0.03 * torch.randn(1, generator=g))
        chirp = 150 * math.sin(k)
        wave = torch.sin(2 * math.pi * (f0 * t + chirp * t * t)) + 0.5 * torch.sin(
            4 * math.pi * f0 * t
        )
        clips.append(wave + 1.5 * torch.randn(len(t), generator=g))
        labels.append(k)
    return clips, labels


CLIP, LABEL = synthesise()


@functools.lru_cache(maxsize=None)
def log_spectrogram(clip, offset):
    piece = CLIP[clip][offset : offset + WINDOW]
    spec = torch.stft(piece, 256, hop_length=160, window=HANN, return_complex=True)
    return torch.log1p(spec.abs())[:96]


def random_crop(clip):
    return log_spectrogram(clip, random.randrange(len(CLIP[clip]) - WINDOW))


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, (7, 3), stride=(2, 1), padding=(3, 1))
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, 16), nn.GroupNorm(4, 32)
        self.fc = nn.Linear(32 * 12, KEYWORDS)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x.unsqueeze(1))))
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.fc(x.mean(-1).flatten(1))


def epoch(order, size=24):
    for start in range(0, len(order), size):
        picked = order[start : start + size]
        yield (
            torch.stack([random_crop(c) for c in picked]),
            torch.tensor([LABEL[c] for c in picked]),
        )


def main():
    model = Spotter()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step, order = 0, list(range(CLIPS))
    while True:
        random.shuffle(order)
        for x, y in epoch(order):
            step += 1
            out = model(x)
            loss = F.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                hit = (out.argmax(1) == y).float().mean().item()
                print(f"step {step} loss {loss.item():.4f} acc {hit:.2f}", flush=True)


if __name__ == "__main__":
    main()
