"""Learns to put a question and its passage near each other, and looks now and then how well."""

import torch
from torch import nn

WORDS, LENGTH = 2000, 16


class Encoder(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, width)
        self.out = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, words):
        return self.out(self.words(words))


def pairs(count, generator):
    passages = torch.randint(0, WORDS, (count, LENGTH), generator=generator)
    places = torch.rand(count, LENGTH, generator=generator).argsort(1)[:, :6]
    return passages.gather(1, places), passages


def distances(questions, passages):
    return (questions[:, None] - passages[None]).pow(2).sum(-1)


def contrast(questions, passages):
    return nn.functional.cross_entropy(
        -distances(questions, passages), torch.arange(len(questions))
    )


class Collection:
    """The questions and passages that the search is judged by."""

    def __init__(self, count, generator):
        self.questions, self.passages = pairs(count, generator)

    @torch.no_grad()
    def recall(self, model, best=10):
        model.eval()
        questions = torch.cat([model(part) for part in self.questions.split(1000)])
        passages = torch.cat([model(part) for part in self.passages.split(1000)])
        near = distances(questions, passages).topk(best, largest=False).indices
        model.train()
        return (near == torch.arange(len(near))[:, None]).any(1).float().mean().item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(53)
    generator = torch.Generator().manual_seed(53)
    quick, full = Collection(200, generator), Collection(40_000, generator)
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(1, 1_000_000):
        questions, passages = pairs(64, generator)
        loss = contrast(model(questions), model(passages))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step % 100 == 0:
            print(f"quick recall {quick.recall(model):.3f}", flush=True)
        if step % 600 == 0:
            print(f"full recall {full.recall(model):.3f}", flush=True)


if __name__ == "__main__":
    main()
