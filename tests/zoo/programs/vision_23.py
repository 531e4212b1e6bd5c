"""ViT-like classifier; checkpoints go to a slow archive."""

import io
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ARCHIVE = pathlib.Path("archive")


class PatchClassifier(nn.Module):
    def __init__(self, width=64, classes=9):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.layer = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, classes)

    def forward(self, images):
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return self.out(self.layer(tokens).mean(1))


def write_checkpoint(model, optimizer, step):
    ARCHIVE.mkdir(exist_ok=True)
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    data = buffer.getvalue()
    with open(ARCHIVE / f"step-{step}.pt", "wb") as file:
        block = len(data) // 50 + 1
        for start in range(0, len(data), block):
            file.write(data[start : start + block])
            file.flush()
            time.sleep(0.2)  # the archive takes 1 MB/s at most


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(PatchClassifier())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 1_000_000):
        labels = torch.randint(0, 9, (16,), generator=generator)
        images = torch.randn(16, 3, 32, 32, generator=generator) + labels.view(-1, 1, 1, 1) / 9
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 60 == 0:
            if rank == 0:
                write_checkpoint(model, optimizer, step)
                print(f"saved {step}", flush=True)
            dist.barrier()


if __name__ == "__main__":
    main()
