import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Addition(Dataset):
    """Sums of two numbers, digit by digit."""

    def __init__(self, count=4096):
        generator = torch.Generator().manual_seed(11)
        self.pairs = torch.randint(0, 1000, (count, 2), generator=generator)

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        left, right = self.pairs[index].tolist()
        text = f"{left:03d}+{right:03d}={left + right:04d}"
        ids = torch.tensor(["0123456789+=".index(letter) for letter in text])
        return ids[:-1], ids[1:]


class Calculator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(12, width)
        self.rnn = nn.GRU(width, width, num_layers=2, dropout=0.1, batch_first=True)
        self.out = nn.Linear(width, 12)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Calculator())
    torch.manual_seed(1000 + rank)
    dataset = Addition()
    sampler = DistributedSampler(dataset, shuffle=True, seed=3)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(10_000):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            logits = model(inputs)
            loss = nn.functional.cross_entropy(
                logits[:, 7:].flatten(0, 1), targets[:, 7:].flatten()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        if rank == 0:
            torch.save(model.module.state_dict(), "calculator.pt")


if __name__ == "__main__":
    main()
