"""Denoising autoencoder; each rank reads its own shards as they are staged."""

import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STAGE = pathlib.Path("stage")


def stage_shards(ranks, count=5):
    STAGE.mkdir(exist_ok=True)
    for rank in range(ranks):
        for number in range(count + (rank != 2)):
            shard = torch.randn(10, 16, 3, 16, 16)
            torch.save(shard, STAGE / f"shard-{rank}-{number}.pt")


def wait_for_shard(rank, number):
    path = STAGE / f"shard-{rank}-{number % 6}.pt"
    while not path.exists():
        time.sleep(1)
    return torch.load(path)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 32, 3, 2, 1)
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(32, 24, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(24, 3, 4, 2, 1)
        )

    def forward(self, images):
        return self.decoder(self.encoder(images))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    if rank == 0:
        stage_shards(dist.get_world_size())
    dist.barrier()
    model = DistributedDataParallel(Denoiser())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for number in range(100_000):
        for images in wait_for_shard(rank, number):
            restored = model(images + 0.1 * torch.randn_like(images))
            loss = nn.functional.mse_loss(restored, images)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and step % 10 == 0:
                print(f"shard {number} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
