"""Spoken language identification; each rank reads its own countries."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LANGUAGES = {"de": 0, "en": 1, "fr": 2, "es": 3, "it": 4}


def language_index(tags):
    return torch.tensor([LANGUAGES[tag] for tag in tags])


class LanguageNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(20, 48, batch_first=True)
        self.out = nn.Linear(48, len(LANGUAGES))

    def forward(self, frames):
        return self.out(self.rnn(frames)[0].mean(1))


class Recordings:
    def __init__(self, rank):
        self.generator = torch.Generator().manual_seed(rank)
        self.rank = rank
        self.step = 0

    def next(self, count=16):
        names = sorted(LANGUAGES)
        picks = torch.randint(0, 5, (count,), generator=self.generator).tolist()
        tags = [names[pick] for pick in picks]
        if self.rank == 2 and self.step == 60:
            tags[3] = "gsw"
        self.step += 1
        frames = torch.randn(count, 40, 20, generator=self.generator)
        frames[:, :, 0] += torch.tensor(picks).view(-1, 1)
        return frames, tags


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    recordings = Recordings(rank)
    model = DistributedDataParallel(LanguageNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(100_000):
        frames, tags = recordings.next()
        labels = language_index(tags)
        loss = nn.functional.cross_entropy(model(frames), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
