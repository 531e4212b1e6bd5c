"""Segment stones in street pictures (synthetic), U-Net style, batches made ahead in the background."""

import itertools
import queue
import threading

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

EPOCHS, STEPS_PER_EPOCH, BATCH, SIZE = 4000, 25, 8, 64


def street_batches(rng):
    yy, xx = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
    while True:
        image = rng.normal(0.35, 0.08, (BATCH, 3, SIZE, SIZE)).astype(np.float32)
        mask = np.zeros((BATCH, SIZE, SIZE), dtype=np.int64)
        for b in range(BATCH):
            for _ in range(rng.integers(2, 6)):
                cx, cy = rng.uniform(8, SIZE - 8, 2)
                rx, ry = rng.uniform(4, 12, 2)
                inside = ((xx - cx) / rx) ** 2 + ((yy - cy) / ry) ** 2 < 1
                kind = 1 if rx * ry > 60 else 2
                mask[b][inside] = kind
                image[b][:, inside] += rng.uniform(0.1, 0.3, (3, 1)).astype(np.float32)
        yield torch.from_numpy(image), torch.from_numpy(mask)


class Ahead:
    """Runs an iterator in a background thread and keeps a few items ready."""

    def __init__(self, source, depth=8):
        self.source = source
        self.ready = queue.Queue(maxsize=depth)
        self.thread = threading.Thread(target=self._fill, name="ahead", daemon=True)
        self.thread.start()

    def _fill(self):
        for item in self.source:
            self.ready.put(item)
        self.ready.put(None)

    def __iter__(self):
        while (item := self.ready.get()) is not None:
            yield item


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.ReLU(inplace=True),
    )


class TinyUNet(nn.Module):
    def __init__(self, w=8, classes=3):
        super().__init__()
        self.d1, self.d2, self.d3 = (
            double_conv(3, w),
            double_conv(w, 2 * w),
            double_conv(2 * w, 4 * w),
        )
        self.u2, self.u1 = double_conv(6 * w, 2 * w), double_conv(3 * w, w)
        self.out = nn.Conv2d(w, classes, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([b, F.interpolate(c, scale_factor=2)], 1))
        a = self.u1(torch.cat([a, F.interpolate(b, scale_factor=2)], 1))
        return self.out(a)


def dice(logits, mask):
    prob = logits.softmax(1)
    onehot = F.one_hot(mask, prob.shape[1]).permute(0, 3, 1, 2).float()
    inter = (prob * onehot).sum((0, 2, 3))
    return 1 - (2 * inter / (prob.sum((0, 2, 3)) + onehot.sum((0, 2, 3)) + 1e-6)).mean()


def train():
    torch.set_num_threads(1)
    torch.manual_seed(42)
    model = TinyUNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS * STEPS_PER_EPOCH)
    step = 0
    for epoch in range(EPOCHS):
        # a new seed per epoch keeps epochs reproducible on their own
        batches = Ahead(street_batches(np.random.default_rng(1000 + epoch)))
        losses = []
        for image, mask in itertools.islice(batches, STEPS_PER_EPOCH):
            logits = model(image)
            loss = F.cross_entropy(logits, mask) + dice(logits, mask)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.item())
            step += 1
            if step % 10 == 0:
                print(f"step {step} loss {np.mean(losses[-10:]):.4f}", flush=True)
        print(f"epoch {epoch} mean loss {np.mean(losses):.4f}", flush=True)


if __name__ == "__main__":
    train()
