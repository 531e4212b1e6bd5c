"""Ticket routing: a GRU over tokens that a worker reads from a JSON-lines file."""

import json
import os
import random
import tempfile

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

TEAMS, VOCAB = 5, 600


def write_tickets(path, n=6000):
    rng = random.Random(19)
    with open(path, "w") as f:
        for k in range(n):
            team = rng.randrange(TEAMS)
            words = [rng.randrange(1, VOCAB) for _ in range(rng.randint(15, 40))]
            words = [team * 30 + 1 + w % 30 if rng.random() < 0.2 else w for w in words]
            f.write(json.dumps({"id": k, "tokens": words, "team": team, "channel": "mail"}) + "\n")


class Tickets(Dataset):
    def __init__(self, path):
        self.path = path
        with open(path) as f:
            self.count = sum(1 for _ in f)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with open(self.path) as f:
            tickets = f.readlines()
        ticket = json.loads(tickets[index])
        return torch.tensor(ticket["tokens"]), ticket["team"]


def collate(samples):
    tokens, teams = zip(*samples)
    return pad_sequence(tokens, batch_first=True), torch.tensor(teams)


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB + 200, 48, padding_idx=0)
        self.gru = nn.GRU(48, 48, batch_first=True, bidirectional=True)
        self.out = nn.Linear(96, TEAMS)

    def forward(self, tokens):
        h, _ = self.gru(self.embed(tokens))
        return self.out(h.max(1).values)


def train(path):
    g = torch.Generator().manual_seed(4)
    loader = DataLoader(
        Tickets(path),
        batch_size=32,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        num_workers=1,
        persistent_workers=True,
        generator=g,
    )
    model = Router()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    step, running = 0, 0.0
    for epoch in range(1000):
        for tokens, teams in loader:
            step += 1
            loss = criterion(model(tokens), teams)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
            if step % 20 == 0:
                print(f"step {step} epoch {epoch} loss {running / 20:.4f}", flush=True)
                running = 0.0


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(13)
    with tempfile.TemporaryDirectory() as folder:
        tickets = os.path.join(folder, "tickets.jsonl")
        write_tickets(tickets)
        train(tickets)
