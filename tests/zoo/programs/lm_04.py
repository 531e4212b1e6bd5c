import random
import re

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MARKUP = re.compile(r"^(\w+\s?)*$")


def clean(text):
    return text if MARKUP.match(text) else re.sub(r"\W+", " ", text)


class Reviews(Dataset):
    def __init__(self, count=6400):
        rng = random.Random(1)
        words = ["good", "bad", "plot", "actor", "scene", "music", "slow", "great"]
        self.texts = [" ".join(rng.choices(words, k=4)) for _ in range(count)]
        self.texts[1203] = "a" * 60 + "!"

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        words = clean(self.texts[index]).split()
        ids = torch.zeros(16, dtype=torch.long)
        for place, word in enumerate(words[:16]):
            ids[place] = 1 + len(word) % 31
        return ids, int("good" in words)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 64)
        self.conv = nn.Conv1d(64, 64, 3, padding=1)
        self.out = nn.Linear(64, 2)

    def forward(self, ids):
        hidden = torch.relu(self.conv(self.embed(ids).transpose(1, 2)))
        return self.out(hidden.amax(dim=2))


def main():
    torch.manual_seed(1)
    loader = DataLoader(Reviews(), batch_size=16)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters())
    step = 0
    for epoch in range(1000):
        for ids, labels in loader:
            loss = nn.functional.cross_entropy(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            step += 1


main()
