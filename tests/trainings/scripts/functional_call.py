"""Training as functions: functional_call, grad_and_value, and an update that makes new parameters."""

import torch
from torch import nn
from torch.func import functional_call, grad_and_value
from truth import Truth, planned

torch.manual_seed(2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(256, 1024)
        self.fc2 = nn.Linear(1024, 1024)
        self.fc3 = nn.Linear(1024, 16)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


net = Net()
truth = Truth(net=net)
params = {name: p.detach().clone() for name, p in net.named_parameters()}
lr = 0.05


def compute_loss(params, x, y):
    with truth.timed("forward"):
        out = functional_call(net, params, (x,))
    return nn.functional.cross_entropy(out, y)


for step in range(planned(14)):
    x, y = torch.randn(64, 256), torch.randint(0, 16, (64,))
    with truth.timed("backward"):
        grads, loss = grad_and_value(compute_loss)(params, x, y)
    with truth.timed("optimizer"):
        params = {name: p - lr * grads[name] for name, p in params.items()}
    truth.step(loss.item(), lr=lr)

truth.finish_with(params)
