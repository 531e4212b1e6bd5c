import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Baskets(Dataset):
    """Five products bought together, and the sixth to be guessed."""

    def __init__(self, count=1536):
        generator = torch.Generator().manual_seed(6)
        first = torch.randint(0, 400, (count, 1), generator=generator)
        self.products = (first + torch.arange(6) * 17) % 400

    def __len__(self):
        return len(self.products)

    def __getitem__(self, index):
        return self.products[index, :5], self.products[index, 5]


class Basket2Vec(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(400, 64, mode="mean")
        self.hidden = nn.Linear(64, 128)
        self.out = nn.Linear(128, 400)

    def forward(self, products):
        return self.out(torch.relu(self.hidden(self.bag(products))))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    dataset = Baskets()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    model = DistributedDataParallel(Basket2Vec())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(10_000):
        total = 0.0
        for products, wanted in loader:
            loss = nn.functional.cross_entropy(model(products), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            step += 1
            if rank == 0 and step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
