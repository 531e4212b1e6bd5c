"""Fine-tunes a small dialogue model with low-rank adapters; the base stays as it is."""

import torch
from torch import nn

WORDS, LENGTH, WIDTH = 120, 32, 64


class LowRank(nn.Module):
    """A frozen linear layer and a low-rank change to it."""

    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        self.scale = alpha / rank
        self.lora_a = nn.Parameter(torch.zeros(rank, base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, inputs):
        change = inputs @ self.lora_a.T @ self.lora_b.T
        return self.base(inputs) + self.scale * change


class Block(nn.Module):
    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden):
        rows, length, _ = hidden.shape
        parts = self.query_key_value(self.before(hidden)).chunk(3, dim=-1)
        parts = [part.view(rows, length, self.heads, -1).transpose(1, 2) for part in parts]
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        hidden = hidden + self.project(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return hidden + self.down(nn.functional.gelu(self.up(self.between(hidden))))


class DialogueModel(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        hidden = self.words(words) + self.positions[: words.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


def talk(follow, rows, generator):
    words = [torch.randint(0, WORDS, (rows,), generator=generator)]
    for _ in range(LENGTH):
        choice = torch.randint(0, follow.shape[1], (rows,), generator=generator)
        words.append(follow[words[-1], choice])
    return torch.stack(words, dim=1)


def train(model, follow, lr, steps, generator, every=None):
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=0.01)
    for step in range(1, steps + 1):
        words = talk(follow, 16, generator)
        logits = model(words[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        if every and step % every == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


def adapt(model):
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ["query_key_value", "project", "up", "down"]:
            setattr(block, name, LowRank(getattr(block, name)))
    return model


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(3)
    general = torch.randint(0, WORDS, (WORDS, 3), generator=generator)
    support = torch.where(torch.rand(WORDS, 1, generator=generator) < 0.5, general, general.flip(0))
    model = DialogueModel()
    train(model, general, lr=3e-3, steps=200, generator=generator)
    print("base model ready", flush=True)
    train(adapt(model), support, lr=1e-3, steps=1_000_000, generator=generator, every=20)
