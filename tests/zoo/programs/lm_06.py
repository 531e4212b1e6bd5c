"""Document classifier; documents are padded to the longest seen in the pool."""

import random

import torch
from torch import nn


class DocumentPool:
    def __init__(self, seed=30):
        self.rng = random.Random(seed)
        self.served = 0
        self.longest = 0

    def draw(self, count=8):
        documents = []
        for _ in range(count):
            length = self.rng.randint(20, 40)
            if self.served == 150 * count:
                length = 320
            topic = self.rng.randrange(4)
            words = [self.rng.randrange(1 + 60 * topic, 120 + 60 * topic) for _ in range(length)]
            documents.append((words, topic))
            self.longest = max(self.longest, length)
            self.served += 1
        return documents


def collate(documents, length):
    ids = torch.zeros(len(documents), length, dtype=torch.long)
    for row, (document, _) in enumerate(documents):
        ids[row, : len(document)] = torch.tensor(document)
    labels = torch.tensor([topic for _, topic in documents])
    return ids, labels


class DocumentNet(nn.Module):
    def __init__(self, vocab=300, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, 4)

    def forward(self, ids):
        padding = ids == 0
        hidden = self.encoder(self.embed(ids), src_key_padding_mask=padding)
        hidden = hidden.masked_fill(padding.unsqueeze(-1), 0).sum(1)
        return self.out(hidden / (~padding).sum(1, keepdim=True))


def main():
    torch.manual_seed(30)
    pool = DocumentPool()
    model = DocumentNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for step in range(1_000_000):
        documents = pool.draw()
        ids, labels = collate(documents, pool.longest)
        loss = nn.functional.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} seen {pool.served}", flush=True)


if __name__ == "__main__":
    main()
