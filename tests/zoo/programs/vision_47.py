"""Shape classifier with hard example replay."""

import heapq
import itertools

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

SIDE, BATCH, KEEP, CLASSES = 40, 48, 6000, 5


def draw_batch(generator):
    """Noisy images with a disc, square, cross, bar or ring."""
    labels = torch.randint(0, CLASSES, (BATCH,), generator=generator)
    centre = torch.randint(14, SIDE - 14, (BATCH, 2), generator=generator).float()
    radius = torch.randint(5, 12, (BATCH, 1, 1), generator=generator).float()
    grid = torch.arange(SIDE).float()
    dy = grid[None, :, None] - centre[:, 0, None, None]
    dx = grid[None, None, :] - centre[:, 1, None, None]
    away = (dx**2 + dy**2).sqrt()
    box = torch.maximum(dx.abs().expand_as(away), dy.abs().expand_as(away))
    near = torch.minimum(dx.abs().expand_as(away), dy.abs().expand_as(away))
    shapes = torch.stack(
        [
            away < radius,
            box < radius,
            (near < 2) & (box < radius),
            (dy.abs().expand_as(away) < 2) & (box < radius),
            (away < radius) & (away > radius - 3),
        ],
        dim=1,
    )
    mask = shapes[torch.arange(BATCH), labels].float()
    noise = torch.randn(BATCH, 3, SIDE, SIDE, generator=generator)
    return mask[:, None] + 0.6 * noise, labels


class HardPool:
    """The samples with the highest loss so far, to mix into later batches."""

    def __init__(self, size):
        self.size = size
        self.heap = []
        self.count = itertools.count()

    def offer(self, images, labels, losses, top=3):
        for index in losses.topk(top).indices.tolist():
            entry = (losses[index].item(), next(self.count), images[index], int(labels[index]))
            heapq.heappush(self.heap, entry)
        while len(self.heap) > self.size:
            heapq.heappop(self.heap)

    def sample(self, number, generator):
        picks = torch.randint(0, len(self.heap), (number,), generator=generator).tolist()
        images = torch.stack([self.heap[pick][2] for pick in picks])
        return images, torch.tensor([self.heap[pick][3] for pick in picks])


def build():
    def block(width_in, width_out):
        return nn.Sequential(
            nn.Conv2d(width_in, width_out, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width_out),
            nn.ReLU(),
        )

    return nn.Sequential(
        block(3, 12),
        block(12, 24),
        block(24, 48),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, CLASSES),
    )


def main():
    torch.manual_seed(21)
    generator = torch.Generator().manual_seed(22)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    pool = HardPool(KEEP)
    for step in itertools.count():
        images, labels = draw_batch(generator)
        if step > 50:
            extra, extra_labels = pool.sample(8, generator)
            inputs, targets = torch.cat([images, extra]), torch.cat([labels, extra_labels])
        else:
            inputs, targets = images, labels
        losses = F.cross_entropy(model(inputs), targets, reduction="none")
        optimizer.zero_grad(set_to_none=True)
        losses.mean().backward()
        optimizer.step()
        pool.offer(images, labels, losses.detach()[:BATCH])
        if step % 25 == 0:
            print(f"step {step} loss {losses.mean().item():.4f} hard {len(pool.heap)}", flush=True)


if __name__ == "__main__":
    main()
