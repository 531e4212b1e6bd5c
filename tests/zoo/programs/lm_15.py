import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Passages(Dataset):
    def __init__(self, count=4000):
        generator = torch.Generator().manual_seed(9)
        self.tokens = torch.randint(0, 80, (count * 32,), generator=generator)
        self.ends = [(number + 1) * 32 for number in range(count)]
        self.ends[1447] -= 1

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, index):
        return self.tokens[index * 32 : self.ends[index]]


def collate(rows):
    batch = torch.stack(rows)
    return batch[:, :-1], batch[:, 1:]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(80, 48)
        self.rnn = nn.GRU(48, 96, batch_first=True)
        self.out = nn.Linear(96, 80)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


def main():
    torch.manual_seed(9)
    loader = DataLoader(Passages(), batch_size=16, collate_fn=collate)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (inputs, targets) in enumerate(loader):
        logits = model(inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
