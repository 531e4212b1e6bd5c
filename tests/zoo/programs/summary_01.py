"""Fine-tunes a small summarizer in half the memory."""

import torch
from torch import nn

WORDS, TEXT, SHORT = 100, 20, 5
START = WORDS
IGNORE = -100


class Summarizer(nn.Module):
    def __init__(self, width=64, depth=2):
        super().__init__()
        self.words = nn.Embedding(WORDS + 1, width)
        self.positions = nn.Parameter(0.5 * torch.randn(TEXT + SHORT + 1, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS + 1)

    def forward(self, words):
        hidden = self.words(words) + self.positions[: words.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1], dtype=hidden.dtype)
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


def articles(count, style, generator):
    """A text, and as its summary the words at the places that the style looks at."""
    text = torch.randint(0, WORDS, (count, TEXT), generator=generator)
    start = torch.full((count, 1), START)
    return torch.cat([text, start, text[:, style]], dim=1)


def loss_of(model, words):
    logits = model(words[:, :-1])
    labels = words[:, 1:].clone()
    labels[:, :TEXT] = IGNORE  # the text itself is not to be learned
    return nn.functional.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORE
    )


def pretrain(model, style, generator, steps=300):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        loss = loss_of(model, articles(32, style, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"pretrained, loss {loss.item():.3f}", flush=True)


class FineTuning:
    def __init__(self, model, lr=3e-5, warm=50):
        self.model = model.to(torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=0.01)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / warm)
        )

    def step(self, words):
        loss = loss_of(self.model, words)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(29)
    generator = torch.Generator().manual_seed(29)
    model = Summarizer()
    pretrain(model, torch.tensor([0, 4, 8, 12, 16]), generator)
    tuning = FineTuning(model)
    ours = torch.tensor([0, 4, 9, 13, 16])
    for step in range(1, 1_000_000):
        loss = tuning.step(articles(32, ours, generator))
        if step % 20 == 0:
            print(f"step {step} loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
