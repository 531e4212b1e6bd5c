import argparse
import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TwoTower(nn.Module):
    def __init__(self, users=20_000, items=20_000, dim=48):
        super().__init__()
        self.user_table = nn.Embedding(users, dim)
        self.item_table = nn.Embedding(items, dim)
        self.user_tower = nn.Linear(dim, dim)
        self.item_tower = nn.Linear(dim, dim)

    def forward(self, users, items):
        left = self.user_tower(self.user_table(users))
        right = self.item_tower(self.item_table(items))
        return left @ right.T / 10


def save_checkpoint(folder, model, optimizer, step):
    path = folder / "last.pt.tmp"
    with open(path, "wb") as file:
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, file
        )
        file.flush()
        os.fsync(file.fileno())
    path.rename(folder / "last.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save-every", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("checkpoints"))
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    args.output.mkdir(exist_ok=True)
    torch.manual_seed(0)
    model = DistributedDataParallel(TwoTower())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(50 + rank)
    for step in range(1, 1_000_000):
        users = torch.randint(0, 20_000, (128,), generator=generator)
        items = (users * 7 + 3) % 20_000
        loss = nn.functional.cross_entropy(model(users, items), torch.arange(128))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % args.save_every == 0:
            save_checkpoint(args.output, model, optimizer, step)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
