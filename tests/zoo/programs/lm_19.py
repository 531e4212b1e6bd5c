"""Train on short sequences first (sequence length warm-up)."""

import dataclasses

import torch
from torch import nn


@dataclasses.dataclass(frozen=True)
class Curriculum:
    shortest: int = 8
    longest: int = 96
    stage_steps: int = 60
    stages: int = 12

    def length(self, step):
        stage = min(step // self.stage_steps, self.stages - 1)
        return self.shortest + (self.longest - self.shortest) * stage // (self.stages - 1)


class Causal(nn.Module):
    def __init__(self, vocab=90, width=64, longest=96):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.place = nn.Embedding(longest, width)
        self.first = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True)
        self.second = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        length = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.embed(ids) + self.place(torch.arange(length))
        hidden = self.first(hidden, src_mask=mask, is_causal=True)
        return self.head(self.second(hidden, src_mask=mask, is_causal=True))


def main():
    torch.manual_seed(33)
    generator = torch.Generator().manual_seed(33)
    curriculum = Curriculum()
    text = (torch.randint(1, 5, (40_000,), generator=generator).cumsum(0)) % 90
    model = Causal()
    optimizer = torch.optim.AdamW(model.parameters(), lr=7e-4)
    for step in range(1_000_000):
        length = curriculum.length(step)
        starts = torch.randint(0, len(text) - length - 1, (8,), generator=generator).tolist()
        rows = torch.stack([text[start : start + length + 1] for start in starts])
        logits = model(rows[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} length {length} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
