"""Keyword spotting on synthetic audio with a feature thread ahead of training."""

import collections
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
RATE, KEYWORDS = 4000, 8


def utterance(rng, k):
    t = np.arange(RATE // 2) / RATE
    base = 200 + 120 * k
    wave = np.sin(2 * np.pi * base * t * (1 + 0.1 * np.sin(2 * np.pi * (2 + k) * t)))
    return (wave * rng.uniform(0.5, 1.0) + 0.8 * rng.normal(size=t.size)).astype(np.float32)


def log_spectrum(waves, win=128, hop=64):
    frames = np.lib.stride_tricks.sliding_window_view(waves, win, axis=1)[:, ::hop]
    spec = np.abs(np.fft.rfft(frames * np.hanning(win), axis=2))
    return np.log(spec + 1e-3).astype(np.float32)


class FeatureStream(threading.Thread):
    def __init__(self, batch=32, depth=8):
        super().__init__(daemon=True, name="features")
        self.batch, self.depth = batch, depth
        self.ready = collections.deque()
        self.rng = np.random.default_rng(6)

    def make(self):
        labels = self.rng.integers(0, KEYWORDS, self.batch)
        waves = np.stack([utterance(self.rng, k) for k in labels])
        return torch.from_numpy(log_spectrum(waves)), torch.from_numpy(labels)

    def run(self):
        while True:
            if len(self.ready) < self.depth:
                self.ready.append(self.make())

    def take(self):
        while not self.ready:
            time.sleep(0.001)
        return self.ready.popleft()


class Spotter(nn.Module):
    def __init__(self, bins=65, width=64):
        super().__init__()
        self.conv1 = nn.Conv1d(bins, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, width, 5, stride=2, padding=2)
        self.out = nn.Linear(width, KEYWORDS)

    def forward(self, spec):
        x = F.relu(self.conv1(spec.transpose(1, 2)))
        x = F.relu(self.conv2(x))
        return self.out(x.mean(2))


def main():
    torch.manual_seed(0)
    stream = FeatureStream()
    stream.start()
    model = Spotter()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    t0, right, seen, step = time.time(), 0, 0, 0
    while True:
        spec, label = stream.take()
        logits = model(spec)
        loss = F.cross_entropy(logits, label)
        opt.zero_grad()
        loss.backward()
        opt.step()
        right += int((logits.argmax(1) == label).sum())
        seen += len(label)
        step += 1
        if step % 20 == 0:
            print(
                f"{time.time() - t0:6.1f}s step {step} loss {loss.item():.4f} acc {right / seen:.3f}",
                flush=True,
            )
            right = seen = 0


if __name__ == "__main__":
    main()
