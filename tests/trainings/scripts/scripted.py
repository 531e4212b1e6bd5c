"""A model that torch.jit.script has compiled, inside of nn.DataParallel as older code has it."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(77)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(512, 1024)
        self.fc2 = nn.Linear(1024, 1024)
        self.fc3 = nn.Linear(1024, 10)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


net = Net()
truth = Truth(net=net)
model = nn.DataParallel(torch.jit.script(net))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(planned(14)):
    x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
    with truth.timed("forward"):
        out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(net)
