"""Two heads (kind and pose) on a frozen backbone; random views, so features can't be kept."""

import contextlib
import queue
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


def backbone():
    net = nn.Sequential(
        nn.Conv2d(1, 32, 5, 2, 2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(64, 96, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(96, 96, 3, 2, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
    )
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight)
    return net.eval().requires_grad_(False)


class Heads(nn.Module):
    def __init__(self, feats=864, kinds=10):
        super().__init__()
        self.adapt = nn.Sequential(
            nn.LayerNorm(feats), nn.Linear(feats, 192), nn.GELU(), nn.Dropout(0.1)
        )
        self.kind = nn.Linear(192, kinds)
        self.pose = nn.Linear(192, 2)
        self.log_var = nn.Parameter(torch.zeros(2))

    def losses(self, f, kind, pose):
        h = self.adapt(f)
        raw = torch.stack([F.cross_entropy(self.kind(h), kind), F.mse_loss(self.pose(h), pose)])
        return raw, (raw * torch.exp(-self.log_var) + self.log_var).sum()


class Producer(threading.Thread):
    """Draws glyphs under random shift and contrast and hands them over through a short queue."""

    def __init__(self, batch, out):
        super().__init__(daemon=True, name="producer")
        self.g = torch.Generator().manual_seed(19)
        coarse = (torch.rand(10, 1, 5, 5, generator=self.g) < 0.5).float()
        self.glyphs = F.interpolate(coarse, scale_factor=4.0)
        self.batch, self.out = batch, out

    def draw(self):
        kind = torch.randint(10, (self.batch,), generator=self.g)
        at = torch.randint(0, 28, (self.batch, 2), generator=self.g)
        x = 0.2 * torch.randn(self.batch, 1, 48, 48, generator=self.g)
        gain = 0.7 + 0.6 * torch.rand(self.batch, generator=self.g)
        for i, (r, c) in enumerate(at.tolist()):
            x[i, :, r : r + 20, c : c + 20] += gain[i] * self.glyphs[kind[i]]
        return x, kind, at.float() / 14 - 1

    def run(self):
        while True:
            self.out.put(self.draw())


class Reporter(threading.Thread):
    """Prints the running means every few seconds."""

    def __init__(self, every=5.0):
        super().__init__(daemon=True, name="reporter")
        self.every, self.wake, self.lock = every, threading.Event(), threading.Lock()
        self.step, self.mean = 0, None

    def note(self, step, raw):
        with self.lock:
            self.step = step
            self.mean = raw if self.mean is None else 0.95 * self.mean + 0.05 * raw

    def run(self):
        while not self.wake.wait(self.every):
            with self.lock:
                step, mean = self.step, self.mean
            if mean is not None:
                print(f"step {step} kind {mean[0]:.3f} pose {mean[1]:.3f}", flush=True)


def main(steps=30_000, batch=64):
    torch.manual_seed(19)
    body, heads = backbone(), Heads()
    opt = torch.optim.AdamW(heads.parameters(), lr=1e-3)
    feed = queue.Queue(maxsize=2)
    reporter = Reporter()
    Producer(batch, feed).start()
    reporter.start()
    begun = time.time()
    with contextlib.suppress(KeyboardInterrupt):
        for step in range(1, steps + 1):
            x, kind, pose = feed.get()
            with torch.no_grad():
                f = body(x)
            raw, loss = heads.losses(f, kind, pose)
            opt.zero_grad()
            loss.backward()
            opt.step()
            reporter.note(step, raw.detach())
    reporter.wake.set()
    print(f"{step} steps in {time.time() - begun:.0f}s")


if __name__ == "__main__":
    main()
