"""Points of a lidar sweep: which of nine objects is it, in mixed precision."""

import torch
import torch.nn.functional as F
from torch import nn

OBJECTS, POINTS = 9, 96


class PointNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.point = nn.Sequential(
            nn.Linear(3, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
        )
        self.object = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, OBJECTS))

    def forward(self, clouds):
        return self.object(self.point(clouds).amax(1))


def sweeps(generator, shapes, count=24):
    objects = torch.randint(0, OBJECTS, (count,), generator=generator)
    directions = F.normalize(torch.randn(count, POINTS, 3, generator=generator), dim=-1)
    clouds = directions * shapes[objects][:, None]
    return clouds + 0.03 * torch.randn(clouds.shape, generator=generator), objects


class Trainer:
    def __init__(self, lr=0.05):
        self.model = PointNet()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu")

    def fit_batch(self, clouds, objects):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(clouds), objects)
        self.scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(53)
    generator = torch.Generator().manual_seed(53)
    shapes = torch.rand(OBJECTS, 3, generator=generator) * 2 + 0.3
    trainer = Trainer()
    smooth = None
    for step in range(100_000):
        loss = trainer.fit_batch(*sweeps(generator, shapes))
        smooth = loss if smooth is None else 0.95 * smooth + 0.05 * loss
        if step % 20 == 0:
            print(f"step {step} loss {smooth:.4f}", flush=True)


if __name__ == "__main__":
    main()
