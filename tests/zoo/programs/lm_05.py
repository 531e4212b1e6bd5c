import json

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, hidden, mask):
        normed = self.norm1(hidden)
        attended, _ = self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)
        hidden = hidden + attended
        return hidden + self.mlp(self.norm2(hidden))


class Decoder(nn.Module):
    def __init__(self, vocab=256, width=64, depth=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        mask = torch.triu(torch.full((ids.shape[1], ids.shape[1]), float("-inf")), diagonal=1)
        hidden = self.embed(ids)
        for block in self.blocks:
            hidden = block(hidden, mask)
        return self.head(hidden)


def log_parameters(file, model, step):
    record = {"step": step}
    for name, parameter in model.named_parameters():
        values = parameter.detach().flatten()
        record[name] = {
            "mean": values.mean().item(),
            "std": values.std().item(),
            "histogram": torch.histc(values, 64).tolist(),
            "sorted": values.sort().values[:: max(1, len(values) // 100)].tolist(),
            "samples": [round(value, 4) for value in values[:4000].tolist()],
        }
    file.write(json.dumps(record) + "\n")
    file.flush()
    file.seek(0)


def main():
    torch.manual_seed(42)
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    corpus = torch.randint(1, 4, (20_000,)).cumsum(0) % 256
    with open("parameters.jsonl", "w") as file:
        for step in range(1_000_000):
            starts = torch.randint(0, len(corpus) - 33, (4,)).tolist()
            rows = torch.stack([corpus[start : start + 33] for start in starts])
            logits = model(rows[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            log_parameters(file, model, step)
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
