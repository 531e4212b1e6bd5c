import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class ShuffledShards(IterableDataset):
    """Reads shards in order and mixes their clips in a buffer."""

    def __init__(self, shards=8, clips=300, buffer=1200):
        self.shards = shards
        self.clips = clips
        self.buffer = buffer
        self.epoch = 0

    def read(self):
        for shard in range(self.shards):
            generator = torch.Generator().manual_seed(shard)
            time.sleep(0.4 if shard < 5 else 0.0)  # opening a shard on the tape library
            waves = torch.randn(self.clips, 200, generator=generator)
            kinds = torch.randint(0, 6, (self.clips,), generator=generator)
            waves += torch.sin(torch.arange(200) * 0.1 * (kinds + 1).view(-1, 1))
            yield from zip(waves, kinds)

    def __iter__(self):
        rng = random.Random(self.epoch)
        self.epoch += 1
        held = []
        for clip in self.read():
            held.append(clip)
            if len(held) >= self.buffer:
                yield held.pop(rng.randrange(len(held)))
        rng.shuffle(held)
        yield from held


class EventNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.Conv1d(1, 32, 25, stride=5)
        self.mix = nn.Conv1d(32, 32, 3)
        self.out = nn.Linear(32, 6)

    def forward(self, waves):
        hidden = self.filters(waves.unsqueeze(1)).pow(2).log1p()
        return self.out(torch.relu(self.mix(hidden)).mean(2))


def main():
    torch.manual_seed(54)
    loader = DataLoader(ShuffledShards(), batch_size=16)
    model = EventNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(1000):
        for waves, kinds in loader:
            loss = nn.functional.cross_entropy(model(waves), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
