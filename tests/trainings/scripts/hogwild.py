"""Hogwild after pytorch/examples: two processes step parameters in shared memory without locks."""

import os

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(256, 1024)
        self.fc2 = nn.Linear(1024, 1024)
        self.fc3 = nn.Linear(1024, 10)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def train(rank, model, steps, truth=None):
    torch.manual_seed(100 + rank)
    if rank:
        os.environ.pop("TRAINING_TRUTH", None)  # the account is of the process that began
    data = TensorDataset(torch.randn(512, 256), torch.randint(0, 10, (512,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    truth = truth or Truth(model=model)
    step = 0
    while step < steps:
        for x, y in loader:
            optimizer.zero_grad()
            with truth.timed("forward"):
                out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            with truth.timed("backward"):
                loss.backward()
            with truth.timed("optimizer"):
                optimizer.step()
            truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], samples=len(x))
            step += 1
            if step == steps:
                break
    truth.finish()


if __name__ == "__main__":
    torch.manual_seed(100)
    model = Net()
    model.share_memory()
    truth = Truth(model=model)
    other = mp.get_context("fork").Process(target=train, args=(1, model, planned(14)))
    other.start()
    train(0, model, planned(14), truth)
    other.join()
