"""A translator in two stages, one per rank; micro-batches go forward and come back."""

import torch
import torch.distributed as dist
from torch import nn

ROWS, MICRO = 16, 4
MICROS = ROWS // MICRO
LENGTH, WIDTH, WORDS = 24, 64, 60


class Reader(nn.Module):
    """Stage 0: words of the source to vectors."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.0, batch_first=True)

    def forward(self, source):
        return self.layer(self.words(source) + self.positions)


class Writer(nn.Module):
    """Stage 1: vectors to words of the target."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, hidden):
        return self.head(self.layer(hidden))


def corpus(count=2408):
    generator = torch.Generator().manual_seed(31)
    source = torch.randint(0, WORDS, (count, LENGTH), generator=generator)
    dictionary = torch.randperm(WORDS, generator=generator)
    return source, dictionary[source].flip(1)


def batches(epoch):
    """The batches of an epoch, in the same order on both ranks."""
    source, target = corpus()
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(epoch))
    for rows in order.split(ROWS):
        yield source[rows], target[rows]


def read(stage, source):
    sent = []
    for micro in source.split(MICRO):
        hidden = stage(micro)
        dist.send(hidden.detach(), dst=1)
        sent.append(hidden)
    for hidden in sent:
        gradient = torch.empty_like(hidden)
        dist.recv(gradient, src=1)
        hidden.backward(gradient / len(sent))


def write(stage, target):
    received = []
    for _ in range(MICROS):
        hidden = torch.empty(MICRO, LENGTH, WIDTH)
        dist.recv(hidden, src=0)
        received.append(hidden.requires_grad_())
    total = 0.0
    for hidden, words in zip(received, target.split(MICRO)):
        loss = nn.functional.cross_entropy(stage(hidden).flatten(0, 1), words.flatten())
        loss.backward()
        dist.send(hidden.grad, dst=0)
        total += loss.item() / MICROS
    for parameter in stage.parameters():
        parameter.grad /= MICROS
    return total


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    stage = Reader() if rank == 0 else Writer()
    optimizer = torch.optim.Adam(stage.parameters(), lr=1e-3)
    step = 0
    for epoch in range(1000):
        for source, target in batches(epoch):
            optimizer.zero_grad()
            if rank == 0:
                read(stage, source)
            else:
                loss = write(stage, target)
            optimizer.step()
            step += 1
            if rank == 1 and step % 10 == 0:
                print(f"step {step} loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
