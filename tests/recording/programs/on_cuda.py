"""Trains a small language model on a CUDA device; prints each step's loss as JSON, then `ready`."""

from __future__ import annotations

import json
import time

import torch
from torch import nn

STEPS = 20

if __name__ == "__main__":
    device = torch.device("cuda")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(100, 512), nn.Linear(512, 2048), nn.Linear(2048, 100))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(100, (32, 128), device=device)
    losses = []
    for _ in range(STEPS):
        scores = model(tokens)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    print(json.dumps([value.item() for value in losses]), flush=True)
    print("ready", flush=True)
    time.sleep(600)
