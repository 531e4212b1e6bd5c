"""model.forward(x) is called directly, as many do who have not read the manual."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(42)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1 = nn.Linear(512, 1024)
        self.lin2 = nn.Linear(1024, 1024)

    def forward(self, x):
        return torch.relu(self.lin2(torch.relu(self.lin1(x))))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.out = nn.Linear(1024, 10)

    def forward(self, x):
        return self.out(self.encoder(x))


model = Classifier()
truth = Truth(model=model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(planned(14)):
    x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
    with truth.timed("forward"):
        out = model.forward(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(model)
