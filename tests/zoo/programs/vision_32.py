"""Mixed precision on CPU with a loss scale."""

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, width, squeeze=16):
        super().__init__()
        self.down = nn.Linear(width, squeeze)
        self.up = nn.Linear(squeeze, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, hidden):
        return hidden + self.up(nn.functional.gelu(self.down(self.norm(hidden))))


class Handwriting(nn.Module):
    def __init__(self, width=96, classes=26):
        super().__init__()
        self.rows = nn.Linear(28, width)
        self.blocks = nn.Sequential(*[Bottleneck(width) for _ in range(4)])
        self.out = nn.Linear(width, classes)

    def forward(self, images):
        return self.out(self.blocks(self.rows(images)).amax(1))


class HalfRange(torch.autograd.Function):
    """Gradients beyond the range of half precision become infinite, as on a device."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return torch.where(gradient.abs() > 65504 / 16, gradient * float("inf"), gradient)


def letters(generator, shapes, count=32):
    labels = torch.randint(0, 26, (count,), generator=generator)
    return shapes[labels] + 0.5 * torch.randn(count, 28, 28, generator=generator), labels


def main():
    torch.manual_seed(72)
    generator = torch.Generator().manual_seed(72)
    shapes = torch.rand(26, 28, 28, generator=generator)
    model = Handwriting()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=10_000)
    for step in range(1_000_000):
        images, labels = letters(generator, shapes)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(images)
        loss = nn.functional.cross_entropy(HalfRange.apply(logits.float()), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():.0f}", flush=True)


if __name__ == "__main__":
    main()
