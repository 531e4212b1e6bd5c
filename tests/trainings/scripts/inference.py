"""Inference only: batches are scored, nothing is trained."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

torch.manual_seed(36)


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(512, 1536), nn.GELU(), nn.Linear(1536, 1024), nn.GELU())
        self.score = nn.Linear(1024, 1)

    def forward(self, x):
        return self.score(self.body(x))


scorer = Scorer().eval()
truth = Truth(scorer=scorer)
batches = planned(24)
loader = DataLoader(TensorDataset(torch.randn(32 * 24, 512)), batch_size=32)
done = 0
with torch.inference_mode():
    while done < batches:
        for (x,) in loader:
            with truth.timed("forward"):
                scores = scorer(x)
            truth.step(None, mean=scores.mean().item())
            done += 1
            if done == batches:
                break
truth.finish(scorer)
