"""Sequence tagger: rank 0 trains, the other rank examines the weights that it gets from time to time."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.set_num_threads(1)

WORDS, TAGS, LENGTH, PERIOD = 500, 9, 24, 400


class Language:
    """The tag of a word depends on the word and on the tag before it."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(7)
        self.kind = torch.randint(0, TAGS, (WORDS,), generator=generator)
        self.follow = torch.randint(0, TAGS, (TAGS, TAGS), generator=generator)
        self.generator = torch.Generator().manual_seed(seed)

    def batch(self, size):
        words = torch.randint(0, WORDS, (size, LENGTH), generator=self.generator)
        tags = torch.zeros_like(words)
        before = torch.zeros(size, dtype=torch.long)
        for place in range(LENGTH):
            before = self.follow[before, self.kind[words[:, place]]]
            tags[:, place] = before
        return words, tags


class Tagger(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.words = nn.Embedding(WORDS, dim)
        self.rnn = nn.LSTM(dim, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, TAGS)

    def forward(self, words):
        hidden, _ = self.rnn(self.words(words))
        return self.out(hidden)


def train():
    model, language = Tagger(), Language(seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    pending = None
    for step in range(1, 400_001):
        words, tags = language.batch(32)
        loss = F.cross_entropy(model(words).flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % PERIOD == 0:
            if pending is not None:
                pending[0].wait()
            weights = parameters_to_vector(model.parameters()).detach().clone()
            pending = (dist.isend(weights, dst=1), weights)


@torch.no_grad()
def examine():
    model, language = Tagger().eval(), Language(seed=2)
    weights = parameters_to_vector(model.parameters())
    for round_number in range(1, 1001):
        dist.recv(weights, src=0)
        vector_to_parameters(weights, model.parameters())
        right = 0.0
        for _ in range(20):
            words, tags = language.batch(64)
            right += (model(words).argmax(-1) == tags).float().mean().item() / 20
        print(f"examined weights {round_number} right {right:.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(110)
    if dist.get_rank() == 0:
        train()
    else:
        examine()


if __name__ == "__main__":
    main()
