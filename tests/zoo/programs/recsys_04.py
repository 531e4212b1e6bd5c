"""Click prediction, data parallel."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


class ClickModel(nn.Module):
    def __init__(self, fields=8, buckets=1000, dim=16):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(buckets, dim) for _ in range(fields)])
        self.deep = nn.Sequential(nn.Linear(fields * dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, fields):
        looked_up = [table(fields[:, place]) for place, table in enumerate(self.tables)]
        return self.deep(torch.cat(looked_up, dim=1)).squeeze(1)


def click_log(count=8192):
    generator = torch.Generator().manual_seed(82)
    fields = torch.randint(0, 1000, (count, 8), generator=generator)
    clicked = ((fields[:, 0] + fields[:, 3]) % 5 == 0).float()
    return TensorDataset(fields, clicked)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(82)
    loader = DataLoader(click_log(), batch_size=64, shuffle=True, drop_last=True)
    model = DDP(ClickModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(10_000):
        for fields, clicked in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(fields), clicked)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0 and rank == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
