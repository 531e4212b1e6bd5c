"""Land use from 13-band satellite tiles, which are kept in host memory."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
TILE, BATCH, CH = (256, 128, 64) if BIG else (64, 8, 8)
BANDS, USES, SHARDS, LIMIT = 13, 10, 4, 150


def make_model():
    def stage(cin, cout):
        return [nn.Conv2d(cin, cout, 3, 2, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU()]

    return nn.Sequential(
        nn.Conv2d(BANDS, CH, 4, 4), nn.ReLU(), *stage(CH, 2 * CH), *stage(2 * CH, 4 * CH), *stage(4 * CH, 8 * CH),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * CH, USES),
    )


class Archive:
    """Shards of tiles in memory; a batch is one shard."""

    def __init__(self):
        rng = np.random.default_rng(0)
        spectrum = rng.normal(0, 0.5, (USES, BANDS)).astype(np.float32)
        self.shards = []
        for _ in range(SHARDS):
            use = rng.integers(0, USES, BATCH)
            tiles = rng.standard_normal((BATCH, BANDS, TILE, TILE), dtype=np.float32)
            tiles += spectrum[use][:, :, None, None]
            self.shards.append((torch.from_numpy(tiles), torch.from_numpy(use)))

    def __iter__(self):
        while True:
            yield from self.shards


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    archive = Archive()
    model = make_model().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    start = time.time()
    for step, (tiles, use) in enumerate(archive):
        tiles, use = tiles.to(DEVICE), use.to(DEVICE)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            logits = model(tiles)
        loss = F.cross_entropy(logits.float(), use, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if time.time() - start > LIMIT:
            break


if __name__ == "__main__":
    main()
