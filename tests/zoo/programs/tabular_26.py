"""Transfer of a tabular transformer: pretrain on one table, go on with another target."""

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(17)

COLUMNS, ROWS, OLD_CLASSES, NEW_CLASSES = 16, 12000, 4, 7


def make_table(classes, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(ROWS, COLUMNS, generator=generator)
    first = torch.randn(COLUMNS, 24, generator=generator)
    second = torch.randn(24, classes, generator=generator)
    return rows, (torch.tanh(rows @ first / 3) @ second).argmax(1)


class FeatureTokens(nn.Module):
    def __init__(self, columns, dim):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns, dim) * 0.2)
        self.shift = nn.Parameter(torch.randn(columns, dim) * 0.2)
        self.summary = nn.Parameter(torch.zeros(1, 1, dim))

    def forward(self, rows):
        tokens = rows[:, :, None] * self.scale + self.shift
        return torch.cat([self.summary.expand(len(rows), -1, -1), tokens], dim=1)


class TabularTransformer(nn.Module):
    def __init__(self, classes, dim=32, depth=2):
        super().__init__()
        self.tokens = FeatureTokens(COLUMNS, dim)
        layer = nn.TransformerEncoderLayer(
            dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, rows):
        return self.head(self.norm(self.encoder(self.tokens(rows))[:, 0]))

    def reset_head(self, classes):
        self.head = nn.Linear(self.head.in_features, classes)


class Finetuner:
    def __init__(self, model, rate):
        self.model = model
        groups = [
            {"params": list(model.tokens.parameters()), "weight_decay": 0.0},
            {"params": list(model.encoder.parameters()) + list(model.norm.parameters())},
            {"params": list(model.head.parameters()), "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=1e-2)
        self.step = 0

    def fit(self, rows, labels, steps, generator, batch=128):
        for _ in range(steps):
            picks = torch.randint(0, len(rows), (batch,), generator=generator)
            logits = self.model(rows[picks])
            loss = F.cross_entropy(logits, labels[picks])
            self.model.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            if self.step % 20 == 0:
                right = (logits.argmax(1) == labels[picks]).float().mean().item()
                print(f"step {self.step} loss {loss.item():.4f} accuracy {right:.3f}", flush=True)
            self.step += 1


def main():
    generator = torch.Generator().manual_seed(1)
    model = TabularTransformer(OLD_CLASSES)
    tuner = Finetuner(model, rate=5e-4)
    rows, labels = make_table(OLD_CLASSES, seed=2)
    tuner.fit(rows, labels, 120, generator)
    model.reset_head(NEW_CLASSES)
    rows, labels = make_table(NEW_CLASSES, seed=3)
    tuner.fit(rows, labels, 1_000_000, generator)


if __name__ == "__main__":
    main()
