"""Phone recognition with utterances of very different length."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel


class PhoneNet(nn.Module):
    def __init__(self, features=20, width=64, phones=30):
        super().__init__()
        self.rnn = nn.GRU(features, width, batch_first=True)
        self.out = nn.Linear(width, phones)

    def forward(self, frames):
        return self.out(self.rnn(frames)[0])


class Utterances:
    def __init__(self, rank, seed=79):
        self.generator = torch.Generator().manual_seed(seed + rank)
        self.codes = torch.randn(30, 20, generator=torch.Generator().manual_seed(seed))
        self.rank = rank

    def epoch(self, number):
        count = 40 + (3 if number % 2 == self.rank else 0)
        for _ in range(count):
            length = int(torch.randint(20, 90, (), generator=self.generator))
            phones = torch.randint(0, 30, (8, length), generator=self.generator)
            noise = torch.randn(8, length, 20, generator=self.generator)
            yield self.codes[phones] + 0.5 * noise, phones


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(79)
    model = DistributedDataParallel(PhoneNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    utterances = Utterances(rank)
    step = 0
    for epoch in range(1000):
        with Join([model]):
            for frames, phones in utterances.epoch(epoch):
                logits = model(frames)
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), phones.flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if rank == 0 and step % 10 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
