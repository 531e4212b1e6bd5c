"""Gradients clipped by norm under OneCycleLR, with DataLoader in the main process."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import Truth, planned

torch.manual_seed(38)


class Tokens(Dataset):
    """Tokenized on the fly, which takes a while."""

    def __len__(self):
        return 8192

    def __getitem__(self, index):
        text = " ".join(str(index * k % 997) for k in range(400))
        return torch.tensor([hash_of(word) for word in text.split()[:24]]), index % 4


def hash_of(word):
    value = 7
    for ch in word:
        value = (value * 31 + ord(ch)) % 1000
    return value


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(1000, 512)
        self.layers = nn.Sequential(
            nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()
        )
        self.out = nn.Linear(1024, 4)

    def forward(self, ids):
        return self.out(self.layers(self.embedding(ids)))


net = Bag()
truth = Truth(net=net)
steps = planned(14)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=5e-3, total_steps=max(steps, 5000)
)
loader = DataLoader(Tokens(), batch_size=48)
step = 0
while step < steps:
    batches = iter(loader)
    for _ in range(len(loader)):
        with truth.timed("data"):
            x, y = next(batches)
        with truth.timed("forward"):
            out = net(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        with truth.timed("backward"):
            loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.5)
        lr = scheduler.get_last_lr()[0]
        with truth.timed("optimizer"):
            optimizer.step()
        scheduler.step()
        truth.step(loss.item(), lr=lr, norm=norm.item())
        step += 1
        if step == steps:
            break

truth.finish(net)
