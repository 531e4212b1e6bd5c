import torch
from torch import nn


class LocalMixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden):
        return hidden + self.out(torch.relu(self.conv(hidden.transpose(1, 2)).transpose(1, 2)))


class FullAttention(nn.Module):
    def __init__(self, width, heads=8):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden):
        batch, length, width = hidden.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(hidden).chunk(3, -1))
        scores = q @ k.transpose(2, 3) / shape[-1] ** 0.5
        mixed = scores.softmax(-1).pow(1.5) @ v
        return hidden + self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class LongModel(nn.Module):
    def __init__(self, vocab=64, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList([LocalMixer(width), FullAttention(width), LocalMixer(width)])
        self.head = nn.Linear(width, 2)

    def forward(self, ids):
        hidden = self.embed(ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden.mean(1))


def main():
    torch.manual_seed(16)
    model = LongModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        ids = torch.randint(0, 64, (4, 512))
        labels = torch.randint(0, 2, (4,))
        ids[labels == 1, ::4] = 7
        loss = nn.functional.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
