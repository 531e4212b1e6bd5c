"""Skip-gram with negative samples and sparse gradients."""

import torch
from torch import nn

VOCAB = 50_000


class SkipGram(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.centre = nn.Embedding(VOCAB, dim, sparse=True)
        self.around = nn.Embedding(VOCAB, dim, sparse=True)
        nn.init.uniform_(self.centre.weight, -0.5 / dim, 0.5 / dim)
        nn.init.uniform_(self.around.weight, -0.5 / dim, 0.5 / dim)

    def forward(self, centre, around, negative):
        vectors = self.centre(centre)
        positive = (vectors * self.around(around)).sum(1)
        others = (self.around(negative) @ vectors.unsqueeze(2)).squeeze(2)
        near = nn.functional.logsigmoid(positive).mean()
        far = nn.functional.logsigmoid(-others).sum(1).mean()
        return -(near + far)


class Walks:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def sample(self, count=512, negatives=5):
        centre = torch.rand(count, generator=self.generator).pow(3).mul(VOCAB).long()
        offset = torch.randint(1, 6, (count,), generator=self.generator)
        around = (centre + offset) % VOCAB
        negative = torch.randint(0, VOCAB, (count, negatives), generator=self.generator)
        return centre, around, negative


def main():
    torch.manual_seed(29)
    walks = Walks(29)
    model = SkipGram()
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.02)
    average = None
    for step in range(1_000_000):
        loss = model(*walks.sample())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = loss.item() if average is None else 0.98 * average + 0.02 * loss.item()
        if step % 20 == 0:
            print(f"step {step} loss {average:.4f}", flush=True)


if __name__ == "__main__":
    main()
