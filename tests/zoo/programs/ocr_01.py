"""Reading of printed part numbers: a row of glyphs goes in, one letter for each position comes out."""

import string

import torch
import torch.nn.functional as F
from torch import nn

ALPHABET = string.ascii_uppercase + string.digits
LENGTH, SIDE = 56, 10


def distance(one, other):
    """Levenshtein distance of two strings."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        above, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (left != right))
    return row[-1]


def text(rows):
    return ["".join(ALPHABET[index] for index in row) for row in rows.tolist()]


class ErrorRate:
    """Character error rate, smoothed over the last batches."""

    def __init__(self):
        self.value = 1.0

    def update(self, logits, labels):
        read, true = text(logits.argmax(-1)), text(labels)
        wrong = sum(distance(a, b) for a, b in zip(read, true))
        self.value = 0.9 * self.value + 0.1 * wrong / labels.numel()


class Reader(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.glyph = nn.Linear(SIDE * SIDE, width)
        self.context = nn.Conv1d(width, width, 3, padding=1)
        self.letter = nn.Linear(width, len(ALPHABET))

    def forward(self, glyphs):
        hidden = F.relu(self.glyph(glyphs))
        hidden = hidden + F.relu(self.context(hidden.transpose(1, 2)).transpose(1, 2))
        return self.letter(hidden)


def printed(fonts, generator, count=40):
    labels = torch.randint(0, len(ALPHABET), (count, LENGTH), generator=generator)
    noise = torch.randn(count, LENGTH, SIDE * SIDE, generator=generator)
    return fonts[labels] + 1.2 * noise, labels


def main():
    torch.set_num_threads(1)
    torch.manual_seed(61)
    generator = torch.Generator().manual_seed(61)
    fonts = (torch.rand(len(ALPHABET), SIDE * SIDE) > 0.6).float()
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    error_rate = ErrorRate()
    for step in range(100_000):
        glyphs, labels = printed(fonts, generator)
        logits = model(glyphs)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        error_rate.update(logits.detach(), labels)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f} cer {error_rate.value:.3f}", flush=True)


if __name__ == "__main__":
    main()
