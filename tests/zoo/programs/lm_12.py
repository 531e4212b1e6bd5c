"""Next-character model on Markov text."""

import torch
from torch import nn


class CharNet(nn.Module):
    def __init__(self, vocab=50, width=96):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.conv1 = nn.Conv1d(width, width, 3)
        self.conv2 = nn.Conv1d(width, width, 3, dilation=2)
        self.out = nn.Linear(width, vocab)

    def forward(self, ids):
        hidden = self.embed(ids).transpose(1, 2)
        hidden = torch.relu(self.conv1(nn.functional.pad(hidden, (2, 0))))
        hidden = torch.relu(self.conv2(nn.functional.pad(hidden, (4, 0))))
        return self.out(hidden.transpose(1, 2))


def markov_text(count, vocab=50):
    generator = torch.Generator().manual_seed(12)
    table = torch.rand(vocab, vocab, generator=generator).pow(8)
    ids = [0]
    for _ in range(count):
        ids.append(torch.multinomial(table[ids[-1]], 1, generator=generator).item())
    return torch.tensor(ids)


def main():
    torch.manual_seed(12)
    text = markov_text(5000)
    model = CharNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for step in range(1, 1_000_000):
        starts = torch.randint(0, len(text) - 41, (4,)).tolist()
        rows = torch.stack([text[start : start + 41] for start in starts])
        logits = model(rows[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        if step % 10 == 0:
            losses.append(loss)
        if step % 25 == 0:
            mean = torch.stack(losses[-10:]).mean()
            print(f"step {step} mean loss {mean.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
