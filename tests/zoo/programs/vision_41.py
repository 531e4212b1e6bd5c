"""Small residual net on synthetic texture images, with activation statistics in the log."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = (
            nn.Identity()
            if cin == cout and stride == 1
            else nn.Conv2d(cin, cout, 1, stride, bias=False)
        )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x))


class TextureNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        self.blocks = nn.Sequential(Block(16, 16), Block(16, 32, 2), Block(32, 64, 2))
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(x.mean(dim=(2, 3)))


class Textures:
    """Oriented gratings in colour with noise; the label is the orientation and the frequency."""

    def __init__(self, classes, batch, seed):
        self.classes, self.batch = classes, batch
        self.g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
        angle = torch.arange(classes) * torch.pi / classes
        freq = 0.25 + 0.1 * (torch.arange(classes) % 3)
        self.wave = freq[:, None, None] * (
            angle.cos()[:, None, None] * xx + angle.sin()[:, None, None] * yy
        )

    def __iter__(self):
        while True:
            y = torch.randint(self.classes, (self.batch,), generator=self.g)
            phase = 6.28 * torch.rand(self.batch, 1, 1, generator=self.g)
            tint = torch.rand(self.batch, 3, 1, 1, generator=self.g)
            x = tint * torch.sin(self.wave[y] + phase)[:, None]
            yield x + 0.5 * torch.randn(x.shape, generator=self.g), y


class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = TextureNet(args.classes)
        self.opt = torch.optim.SGD(
            self.model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4
        )
        self.stats = {}

    def watch_activations(self):
        """Share of dead units and the spread of each block's output, for the log line."""
        for name, block in self.model.blocks.named_children():

            def note(module, inputs, output, name=name):
                out = output[:4].detach()
                self.stats[name] = (float((out <= 0).float().mean()), float(out.std()))

            block.register_forward_hook(note)

    def train_step(self, x, y):
        self.model.train()
        self.watch_activations()
        logits = self.model(x)
        loss = F.cross_entropy(logits, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item(), (logits.argmax(1) == y).float().mean().item()

    def fit(self):
        start = time.time()
        for step, (x, y) in enumerate(
            Textures(self.args.classes, self.args.batch, self.args.seed), 1
        ):
            loss, acc = self.train_step(x, y)
            if step % 20 == 0:
                dead = " ".join(f"{k}:{v[0]:.2f}/{v[1]:.2f}" for k, v in self.stats.items())
                print(
                    f"step {step} t {time.time() - start:.0f}s loss {loss:.3f} acc {acc:.2f} act {dead}",
                    flush=True,
                )
            if step == self.args.steps:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    Trainer(args).fit()
