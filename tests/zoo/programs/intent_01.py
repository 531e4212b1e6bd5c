"""A small student learns intents from a larger teacher, its answers and its inner features."""

from functools import partial

import torch
from torch import nn

WORDS, LENGTH, INTENTS = 500, 16, 12


class Classifier(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList(nn.GRU(width, width, batch_first=True) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.head = nn.Linear(width, INTENTS)

    def forward(self, words):
        hidden = self.words(words)
        for layer, norm in zip(self.layers, self.norms):
            hidden = norm(hidden + layer(hidden)[0])
        return self.head(hidden.mean(1))


class Features:
    """Keeps what the named layers of a model put out."""

    def __init__(self, model, layers):
        self.model, self.layers = model, layers
        self.kept = {}

    def keep(self, name, module, inputs, output):
        spread = output.std(dim=-1, keepdim=True) + 1e-5
        self.kept[name] = (output - output.mean(dim=-1, keepdim=True)) / spread

    def of(self, words):
        for name in self.layers:
            self.model.get_submodule(name).register_forward_hook(partial(self.keep, name))
        logits = self.model(words)
        return logits, [self.kept[name] for name in self.layers]


def utterances(count, topics, generator):
    intents = torch.randint(0, INTENTS, (count,), generator=generator)
    words = torch.multinomial(topics[intents], LENGTH, replacement=True, generator=generator)
    return words, intents


def teach(teacher, topics, generator, steps=120):
    optimizer = torch.optim.Adam(teacher.parameters(), lr=2e-3)
    for _ in range(steps):
        words, intents = utterances(32, topics, generator)
        loss = nn.functional.cross_entropy(teacher(words), intents)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return teacher.eval().requires_grad_(False)


class Distiller:
    def __init__(self, teacher, student):
        self.teacher = Features(teacher, ["norms.0", "norms.1", "norms.2"])
        self.student = student
        self.match = nn.Linear(student.head.in_features, teacher.head.in_features)
        parameters = [*student.parameters(), *self.match.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=1e-3)
        self.hidden = None
        student.norms[-1].register_forward_hook(self.remember)

    def remember(self, module, inputs, output):
        self.hidden = output

    def step(self, words, intents, heat=2.0):
        with torch.no_grad():
            answers, features = self.teacher.of(words)
        logits = self.student(words)
        soft = nn.functional.kl_div(
            (logits / heat).log_softmax(-1), (answers / heat).softmax(-1), reduction="batchmean"
        )
        near = nn.functional.mse_loss(self.match(self.hidden), torch.stack(features).mean(0))
        loss = nn.functional.cross_entropy(logits, intents) + soft + 0.1 * near
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(23)
    generator = torch.Generator().manual_seed(5)
    topics = torch.rand(INTENTS, WORDS, generator=generator) ** 6
    teacher = teach(Classifier(64, 3), topics, generator)
    distiller = Distiller(teacher, Classifier(32, 1))
    for step in range(1, 1_000_000):
        loss = distiller.step(*utterances(32, topics, generator))
        if step % 20 == 0:
            print(f"step {step} loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
