"""Tiny detector with per-rank augmentation policies."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

POLICIES = {0: "flip", 1: "mosaic", 2: "flip"}


def augment(images, policy):
    if policy == "flip":
        return images.flip(3)
    result = images.clone()
    side = images.shape[-1] // 2
    for index in range(len(images)):
        for row in range(0, side, 2):
            other = (index + row) % len(images)
            result[index, :, row, :side] = images[other, :, row, :side] * 0.5
            result[index, :, row + side, side:] = images[other, :, row + side, side:] * 0.5
    return result


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.boxes = nn.Conv2d(16, 4, 1)
        self.objects = nn.Conv2d(16, 1, 1)

    def forward(self, images):
        features = self.backbone(images)
        return self.boxes(features), self.objects(features)


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(33)
    model = DistributedDataParallel(Detector())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1_000_000):
        images = augment(torch.rand(16, 3, 32, 32, generator=generator), POLICIES[rank])
        boxes, objects = model(images)
        wanted = nn.functional.avg_pool2d(images.mean(1, keepdim=True), 4)
        loss = nn.functional.l1_loss(boxes, wanted.expand_as(boxes)) + nn.functional.mse_loss(
            objects, wanted
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
