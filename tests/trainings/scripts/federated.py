"""Federated averaging: in each round clients train copies of the model, with optimizers of their own."""

import copy
import gc

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(87)
LOCAL, CLIENTS = 3, 2
global_model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
truth = Truth(global_model=global_model)
data = [(torch.randn(96, 256), torch.randint(0, 10, (96,))) for _ in range(CLIENTS)]


def train_client(number):
    model = copy.deepcopy(global_model)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = data[number]
    for begin in range(0, LOCAL * 32, 32):
        with truth.timed("forward"):
            out = model(x[begin : begin + 32])
        loss = nn.functional.cross_entropy(out, y[begin : begin + 32])
        optimizer.zero_grad()
        with truth.timed("backward"):
            loss.backward()
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])
    return model.state_dict()


def average(states):
    return {key: torch.stack([s[key] for s in states]).mean(0) for key in states[0]}


rounds = -(-planned(18) // (LOCAL * CLIENTS))
for round_number in range(rounds):
    states = [train_client(number) for number in range(CLIENTS)]
    gc.collect(1)  # the copies are young; a whole one would take a tenth of the time
    global_model.load_state_dict(average(states))
    global_model.eval()
    with torch.no_grad(), truth.timed("evaluation"):
        accuracy = (global_model(data[0][0]).argmax(-1) == data[0][1]).float().mean().item()

truth.finish(global_model)
