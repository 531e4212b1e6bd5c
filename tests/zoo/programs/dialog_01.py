"""Intent of dialogue turns: a small student learns the soft answers of a larger teacher."""

import torch
import torch.nn.functional as F
from torch import nn

WORDS, INTENTS, LENGTH = 2_000, 15, 16
TEMPERATURE = 2.0


class TurnNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.intent = nn.Linear(width, INTENTS)

    def forward(self, turns):
        states, _ = self.rnn(self.words(turns))
        return self.intent(states.mean(1))


class Distillation(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, student, teacher):
        ours = F.softmax(student / self.temperature, dim=-1)
        theirs = F.softmax(teacher / self.temperature, dim=-1)
        return F.kl_div(ours, theirs, reduction="batchmean") * self.temperature**2


def turns(generator, count=48):
    intents = torch.randint(0, INTENTS, (count,), generator=generator)
    typical = intents[:, None] * 100 + torch.randint(0, 100, (count, LENGTH), generator=generator)
    other = torch.randint(0, WORDS, (count, LENGTH), generator=generator)
    own = torch.rand(count, LENGTH, generator=generator) < 0.35
    return torch.where(own, typical, other), intents


def fit_teacher(generator, steps=250):
    teacher = TurnNet(48)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=5e-3)
    for _ in range(steps):
        words, intents = turns(generator)
        loss = F.cross_entropy(teacher(words), intents, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"teacher ready, loss {loss.item():.3f}", flush=True)
    return teacher.eval().requires_grad_(False)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(72)
    generator = torch.Generator().manual_seed(72)
    teacher = fit_teacher(generator)
    student = TurnNet(24)
    criterion = Distillation(TEMPERATURE)
    optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
    for step in range(100_000):
        words, intents = turns(generator)
        with torch.no_grad():
            answers = teacher(words)
        logits = student(words)
        loss = criterion(logits, answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            right = (logits.argmax(-1) == intents).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} accuracy {right:.3f}", flush=True)


if __name__ == "__main__":
    main()
