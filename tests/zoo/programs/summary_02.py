"""Fine-tunes a summarizer on short texts: mixed precision, gradients gathered over four batches."""

import math

import torch
from torch import nn

WORDS, START = 64, 64
GATHER = 4
IGNORE = -100


class Summarizer(nn.Module):
    def __init__(self, width=96, depth=2, context=40):
        super().__init__()
        self.words = nn.Embedding(WORDS + 1, width)
        self.positions = nn.Parameter(0.2 * torch.randn(context, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 3 * width, dropout=0.1, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, words):
        hidden = self.words(words) + self.positions[: words.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        hidden = self.norm(self.layers(hidden, mask=mask, is_causal=True))
        return hidden @ self.words.weight.T / math.sqrt(hidden.shape[-1])


def texts(count, generator, length=28):
    """The summary: the first words of the text's four parts."""
    words = torch.randint(0, WORDS, (count, length), generator=generator)
    summary = words[:, :: length // 4]
    rows = torch.cat([words, torch.full((count, 1), START), summary], dim=1)
    labels = rows[:, 1:].clone()
    labels[:, :length] = IGNORE
    return rows[:, :-1], labels


class Trainer:
    def __init__(self, model, lr=1.5e-3, warm=40, total=20_000):
        self.model = model
        decayed = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() <= 1]
        groups = [
            {"params": decayed, "weight_decay": 0.05},
            {"params": others, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))

        def share(step):
            done = min(1.0, max(0, step - warm) / (total - warm))
            return min(1.0, (step + 1) / warm) * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def step(self, generator):
        total = 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(GATHER):
            words, labels = texts(16, generator)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = self.model(words)
            loss = nn.functional.cross_entropy(
                logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORE
            )
            (loss / GATHER).backward()
            total += loss.item() / GATHER
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.3)
        self.optimizer.step()
        self.schedule.step()
        return total


def main():
    torch.set_num_threads(1)
    torch.manual_seed(73)
    generator = torch.Generator().manual_seed(73)
    trainer = Trainer(Summarizer())
    for step in range(1, 20_001):
        loss = trainer.step(generator)
        if step % 5 == 0:
            rate = trainer.schedule.get_last_lr()[0]
            print(f"step {step} loss {loss:.3f} rate {rate:.2e}", flush=True)


if __name__ == "__main__":
    main()
