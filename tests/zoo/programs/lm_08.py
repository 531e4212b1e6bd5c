import dataclasses

import torch
from torch import nn


@dataclasses.dataclass
class Config:
    vocab: int = 100
    width: int = 64
    context: int = 40
    batch_size: int = 8
    accumulate: int = 4
    lr: float = 1e-3
    seed: int = 18


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab, config.width)
        self.rnn = nn.LSTM(config.width, config.width, batch_first=True)
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.05)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embed(ids))
        return self.head(self.norm(hidden))


def batches(config):
    generator = torch.Generator().manual_seed(config.seed)
    while True:
        start = torch.randint(0, config.vocab, (config.batch_size, 1), generator=generator)
        rows = (start + 3 * torch.arange(config.context + 1)) % config.vocab
        yield rows[:, :-1], rows[:, 1:]


def train(config):
    torch.manual_seed(config.seed)
    model = Model(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    for step, (inputs, targets) in enumerate(batches(config), 1):
        logits = model(inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        (loss / config.accumulate).backward()
        if step % config.accumulate == config.accumulate:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train(Config())
