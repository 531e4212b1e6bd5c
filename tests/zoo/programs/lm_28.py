import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

TOPICS = ["rail", "parcel", "harvest", "weather", "council", "sport", "theatre", "obituary"]
VOCAB = 800
EPOCHS = 200


class Letters(Dataset):
    """Letters as token ids. Every topic has its own favourite words among common ones."""

    def __init__(self, count, seed):
        rng = random.Random(seed)
        favourites = [random.Random(k).sample(range(1, VOCAB), 40) for k in range(len(TOPICS))]
        self.items = []
        for _ in range(count):
            topic = rng.randrange(len(TOPICS))
            length = rng.randint(8, 48)
            words = [
                rng.choice(favourites[topic]) if rng.random() < 0.35 else rng.randrange(1, VOCAB)
                for _ in range(length)
            ]
            self.items.append((words, topic))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        words, topic = self.items[i]
        return torch.tensor(words), topic


def collate(batch):
    docs, topics = zip(*batch)
    docs = sorted(docs, key=len, reverse=True)
    lengths = torch.tensor([len(d) for d in docs])
    return pad_sequence(docs, batch_first=True), lengths, torch.tensor(topics)


class Sorter(nn.Module):
    def __init__(self, dim=64, hidden=96):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.gru = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(2 * hidden, len(TOPICS))

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True)
        _, h = self.gru(packed)
        return self.out(self.drop(torch.cat([h[0], h[1]], dim=-1)))


class Trainer:
    def __init__(self, model, train, valid):
        self.model, self.train_loader, self.valid_loader = model, train, valid
        self.opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.criterion = nn.CrossEntropyLoss()
        self.step = 0
        self.window = []

    def train_epoch(self):
        self.model.train()
        for tokens, lengths, topics in self.train_loader:
            logits = self.model(tokens, lengths)
            loss = self.criterion(logits, topics)
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.opt.step()
            self.step += 1
            self.window.append(loss.item())
            if self.step % 20 == 0:
                print(
                    f"step {self.step} loss {sum(self.window) / len(self.window):.4f}", flush=True
                )
                self.window.clear()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        right = total = 0
        for tokens, lengths, topics in self.valid_loader:
            right += (self.model(tokens, lengths).argmax(-1) == topics).sum().item()
            total += len(topics)
        return right / total

    def fit(self, epochs):
        for epoch in range(epochs):
            self.train_epoch()
            print(f"epoch {epoch} valid acc {self.validate():.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(17)
    random.seed(17)
    train = DataLoader(
        Letters(9600, 1), batch_size=32, shuffle=True, drop_last=True, collate_fn=collate
    )
    valid = DataLoader(Letters(480, 2), batch_size=96, collate_fn=collate)
    Trainer(Sorter(), train, valid).fit(EPOCHS)
