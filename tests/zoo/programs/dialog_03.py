"""Adapts a frozen chat model to one customer, with low-rank adapters in its attention."""

import math

import torch
from torch import nn

WORDS, LENGTH = 150, 24


class Adapted(nn.Module):
    def __init__(self, linear, rank=4, alpha=8):
        super().__init__()
        self.linear = linear
        self.scale = alpha / rank
        self.drop = nn.Dropout(0.05)
        self.a = nn.Parameter(torch.empty(rank, linear.in_features))
        self.b = nn.Parameter(torch.zeros(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, inputs):
        return self.linear(inputs) + self.scale * (self.drop(inputs) @ self.a.T @ self.b.T)


class Mixer(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.feed = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)
        )

    def forward(self, hidden):
        inputs = self.norm(hidden)
        split = [
            part(inputs).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        ]
        mixed = nn.functional.scaled_dot_product_attention(*split, is_causal=True)
        hidden = hidden + self.o(mixed.transpose(1, 2).flatten(2))
        return hidden + self.feed(hidden)


class ChatModel(nn.Module):
    def __init__(self, width=96, depth=3):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList(Mixer(width) for _ in range(depth))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, WORDS))

    def forward(self, words):
        hidden = self.words(words)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


class Corpus:
    def __init__(self, follow, seed):
        self.follow = follow
        self.generator = torch.Generator().manual_seed(seed)

    def batch(self, count=16):
        words = torch.randint(0, WORDS, (count, 1), generator=self.generator)
        for _ in range(LENGTH):
            choice = torch.randint(0, 2, (count,), generator=self.generator)
            words = torch.cat([words, self.follow[words[:, -1], choice][:, None]], dim=1)
        return words


def fit(model, corpus, lr, steps):
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)
    model.train()
    for step in range(1, steps + 1):
        words = corpus.batch()
        logits = model(words[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        yield step, loss.item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(91)
    general = torch.randint(0, WORDS, (WORDS, 2))
    customer = torch.where(torch.rand(WORDS, 1) < 0.4, general.roll(7, 0), general)
    model = ChatModel()
    for _, loss in fit(model, Corpus(general, 1), lr=3e-3, steps=200):
        pass
    model.requires_grad_(False)
    for layer in model.layers:
        layer.q, layer.v, layer.o = Adapted(layer.q), Adapted(layer.v), Adapted(layer.o)
    every = sum(parameter.numel() for parameter in model.parameters())
    some = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    print(f"base loss {loss:.3f}, {some} of {every} parameters are trained", flush=True)
    for step, loss in fit(model, Corpus(customer, 2), lr=2e-3, steps=1_000_000):
        if step % 20 == 0:
            print(f"step {step} loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
