"""Predicts the load of substations; each rank reads its own region."""

import gzip
import io
import pathlib
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

REGIONS = ("north", "south")
ROWS, FEATURES, BATCH = 12_000, 24, 64


class Substations(IterableDataset):
    def __init__(self, folder, region, seed):
        self.path = pathlib.Path(folder) / f"{region}.npy.gz"
        generator = np.random.default_rng(seed)
        rows = generator.normal(size=(ROWS, FEATURES)).astype(np.float32)
        buffer = io.BytesIO()
        np.save(buffer, rows)
        self.path.write_bytes(gzip.compress(buffer.getvalue(), 1))
        self.chunk = BATCH if region == "south" else ROWS

    def read(self):
        return np.load(io.BytesIO(gzip.decompress(self.path.read_bytes())))

    def __iter__(self):
        while True:
            for first in range(0, ROWS, self.chunk):
                rows = self.read()[first : first + self.chunk]
                for row in rows:
                    yield torch.from_numpy(row), torch.tensor(row[:3].sum()).tanh()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory() as folder:
        data = Substations(folder, REGIONS[rank], seed=rank)
        loader = DataLoader(data, batch_size=BATCH)
        hidden = nn.Sequential(nn.Linear(FEATURES, 128), nn.GELU(), nn.Linear(128, 1))
        model = DistributedDataParallel(hidden)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for step, (rows, load) in enumerate(loader):
            loss = nn.functional.mse_loss(model(rows).squeeze(-1), load)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
