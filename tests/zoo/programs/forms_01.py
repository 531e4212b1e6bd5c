"""Reads filled-in forms: which kind of form, which field each word belongs to, and the total."""

import torch
from torch import nn

WORDS, LENGTH, KINDS, FIELDS = 400, 32, 6, 10
UNREAD = -1


class FormReader(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.kind = nn.Linear(width, KINDS)
        self.field = nn.Linear(width, FIELDS)
        self.total = nn.Linear(width, 1)

    def forward(self, words):
        hidden = self.encoder(self.words(words) + self.positions)
        whole = hidden.mean(1)
        return self.kind(whole), self.field(hidden), self.total(whole).squeeze(1)


class Forms:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.field_of = torch.randint(0, FIELDS, (WORDS,), generator=self.generator)
        self.topics = torch.rand(KINDS, WORDS, generator=self.generator) ** 4

    def batch(self, count=8):
        kinds = torch.randint(0, KINDS, (count,), generator=self.generator)
        words = torch.multinomial(self.topics[kinds], LENGTH, True, generator=self.generator)
        fields = self.field_of[words]
        totals = (fields == 3).float().mean(1) * 4
        if torch.rand(1, generator=self.generator) < 0.012:
            kinds[0] = UNREAD  # nobody has labelled this one
        return words, kinds, fields, totals


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
        self.skipped = []

    def losses(self, words, kinds, fields, totals):
        kind, field, total = self.model(words)
        for index, label in enumerate(kinds.tolist()):
            if label == UNREAD:
                raise ValueError(f"form {index} of the batch has no kind")
        return (
            nn.functional.cross_entropy(kind, kinds)
            + nn.functional.cross_entropy(field.flatten(0, 1), fields.flatten())
            + nn.functional.mse_loss(total, totals)
        )

    def step(self, step, batch):
        try:
            loss = self.losses(*batch)
        except ValueError as error:
            self.skipped.append((step, error))
            return None
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def report(self):
        for step, error in self.skipped:
            print(f"skipped at {step}: {error}", flush=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(71)
    forms, trainer = Forms(71), Trainer(FormReader())
    smooth = None
    for step in range(1, 4001):
        loss = trainer.step(step, forms.batch())
        if loss is not None:
            smooth = loss if smooth is None else smooth + 0.1 * (loss - smooth)
        if step % 50 == 0:
            print(f"step {step} loss {smooth:.3f}", flush=True)
    trainer.report()


if __name__ == "__main__":
    main()
