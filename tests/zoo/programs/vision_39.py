"""Image classifier with an EMA copy; the EMA copy is what we validate and ship."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_data(n, protos, noise=7.0, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, len(protos), (n,), generator=g)
    x = protos[y] + noise * torch.randn(n, 3, 20, 20, generator=g)
    return x, y


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(o)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(o)
        self.skip = nn.Conv2d(i, o, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer1, self.layer2 = Block(3, 16, 1), Block(16, 32, 2)
        self.drop = nn.Dropout(0.4)
        self.fc = nn.Linear(32 * 25, classes)

    def forward(self, x):
        h = F.avg_pool2d(self.layer2(self.layer1(x)), 2)
        return self.fc(self.drop(h.flatten(1)))


@torch.no_grad()
def ema_update(ema, model, decay):
    for e, p in zip(ema.parameters(), model.parameters()):
        e.lerp_(p, 1 - decay)
    for e, b in zip(ema.buffers(), model.buffers()):
        e.copy_(b)


class Experiment:
    def __init__(self, classes=10):
        protos = F.interpolate(torch.randn(classes, 3, 5, 5), size=20, mode="bilinear")
        self.train_x, self.train_y = get_data(6000, protos, seed=1)
        self.val_x, self.val_y = get_data(480, protos, seed=2)
        self.model = Net(classes)
        self.ema = copy.deepcopy(self.model)
        for p in self.ema.parameters():
            p.requires_grad_(False)
        self.opt = torch.optim.SGD(
            self.model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4
        )
        self.step = 0

    def train_step(self):
        i = torch.randint(0, len(self.train_x), (40,))
        loss = F.cross_entropy(self.model(self.train_x[i]), self.train_y[i])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.step += 1
        ema_update(self.ema, self.model, min(0.99, (1 + self.step) / (10 + self.step)))
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        hit, loss = 0, 0.0
        for x, y in zip(self.val_x.split(24), self.val_y.split(24)):
            out = self.ema(x)
            hit += (out.argmax(1) == y).sum().item()
            loss += F.cross_entropy(out, y, reduction="sum").item()
        self.model.train()
        return loss / len(self.val_y), hit / len(self.val_y)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(8)
    exp = Experiment()
    while True:
        loss = exp.train_step()
        if exp.step % 75 == 0:
            vl, va = exp.validate()
            print(f"step {exp.step} train {loss:.4f} val(ema) {vl:.4f} acc {va:.3f}", flush=True)
