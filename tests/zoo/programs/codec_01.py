"""A small audio codec: clips are decoded in a pool of threads and coded with a quantised bottleneck."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn

WINDOW = 2048
POOL = ThreadPoolExecutor(3, thread_name_prefix="decode")


def decode_window(clip, start):
    piece = clip[start : start + WINDOW].astype(np.float32) / 32768
    spectrum = np.fft.rfft(piece, WINDOW)
    spectrum[600:] = 0
    return torch.from_numpy(np.fft.irfft(spectrum, WINDOW).astype(np.float32))


def decode(clip):
    if len(clip) <= WINDOW:
        return decode_window(clip, 0)
    parts = [POOL.submit(decode_window, clip, start) for start in range(0, len(clip), WINDOW)]
    return torch.cat([part.result() for part in parts])


def record(rng, length):
    tick = np.arange(length)
    tones = rng.uniform(0.005, 0.1, 3)[:, None] * tick * 2 * np.pi
    return (np.sin(tones).mean(0) * 20_000 + 200 * rng.normal(size=length)).astype(np.int16)


class Codec(nn.Module):
    def __init__(self, width=48, code=12):
        super().__init__()
        self.down = nn.Conv1d(1, width, 16, stride=8, padding=4)
        self.squeeze = nn.Conv1d(width, code, 3, padding=1)
        self.expand = nn.Conv1d(code, width, 3, padding=1)
        self.up = nn.ConvTranspose1d(width, 1, 16, stride=8, padding=4)

    def forward(self, sound):
        code = torch.tanh(self.squeeze(torch.relu(self.down(sound))))
        code = code + ((code * 8).round() / 8 - code).detach()
        return self.up(torch.relu(self.expand(code)))


class Trainer:
    def __init__(self):
        self.rng = np.random.default_rng(12)
        self.model = Codec()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.short = [record(self.rng, WINDOW) for _ in range(400)]
        self.long = [record(self.rng, 4 * WINDOW) for _ in range(100)]

    def batch(self, step):
        clips, count = (self.short, 16) if step < 110 else (self.long, 4)
        chosen = self.rng.choice(len(clips), count, replace=False)
        return torch.stack(list(POOL.map(decode, [clips[index] for index in chosen])))[:, None]

    def run(self, steps):
        for step in range(steps):
            sound = self.batch(step)
            loss = nn.functional.mse_loss(self.model(sound), sound)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 10 == 0:
                print(f"step {step} samples {sound.shape[-1]} loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(12)
    Trainer().run(100_000)
