"""Disease grades from images of the retina, made blind to the camera by a reversed gradient."""

import math

import torch
import torch.nn.functional as F
from torch import nn

GRADES, CAMERAS, SIDE = 5, 3, 24


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, strength):
        ctx.strength = strength
        return hidden.view_as(hidden)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.strength * gradient, None


class RetinaNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * width * 36, 64),
            nn.ReLU(),
        )
        self.grade = nn.Linear(64, GRADES)
        self.camera = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, CAMERAS))

    def forward(self, images, strength):
        hidden = self.features(images)
        return self.grade(hidden), self.camera(Reverse.apply(hidden, strength))


def photographs(generator, signs, tints, count=32):
    grades = torch.randint(0, GRADES, (count,), generator=generator)
    cameras = torch.randint(0, CAMERAS, (count,), generator=generator)
    images = signs[grades] + tints[cameras]
    images = images + 0.8 * torch.randn(count, SIDE, SIDE, generator=generator)
    return images[:, None], grades, cameras


def main():
    torch.set_num_threads(1)
    torch.manual_seed(14)
    generator = torch.Generator().manual_seed(14)
    signs = 0.8 * torch.randn(GRADES, SIDE, SIDE, generator=generator)
    tints = 0.3 * torch.randn(CAMERAS, SIDE, SIDE, generator=generator)
    model = RetinaNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(100_000):
        strength = 2 / (1 + math.exp(-step / 100)) - 1
        images, grades, cameras = photographs(generator, signs, tints)
        graded, seen = model(images, strength)
        grade_loss = F.cross_entropy(graded, grades)
        camera_loss = F.cross_entropy(seen, cameras)
        optimizer.zero_grad()
        (grade_loss + camera_loss).backward()
        optimizer.step()
        if step % 20 == 0:
            print(
                f"step {step} grade {grade_loss.item():.3f} camera {camera_loss.item():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
