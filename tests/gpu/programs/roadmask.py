"""Road segmentation: U-Net in bf16; validation and a checkpoint every 250 steps."""
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
SIZE, BATCH, CH, EVAL_BATCHES = (128, 64, 48, 12) if BIG else (32, 4, 8, 4)
EVAL_EVERY, LIMIT = 250, 150


def double(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(),
        nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1, self.enc2, self.enc3 = double(3, CH), double(CH, 2 * CH), double(2 * CH, 4 * CH)
        self.dec2, self.dec1 = double(6 * CH, 2 * CH), double(3 * CH, CH)
        self.out = nn.Conv2d(CH, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        c = self.enc3(F.max_pool2d(b, 2))
        b = self.dec2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        return self.out(self.dec1(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1))).squeeze(1)


def scenes(n):
    """A curved road across a noisy landscape, and its mask."""
    u = torch.linspace(-1, 1, SIZE, device=DEVICE)
    a, b, c, width = torch.randn(4, n, 1, 1, device=DEVICE) * 0.3
    centre = a + b * u.view(1, -1, 1) + c * torch.sin(4 * u.view(1, -1, 1))
    mask = ((u.view(1, 1, -1) - centre).abs() < 0.15 + 0.1 * width.abs()).float()
    ground = F.interpolate(torch.randn(n, 3, 8, 8, device=DEVICE), size=(SIZE, SIZE), mode="bilinear")
    image = ground + 0.8 * mask.unsqueeze(1) + 0.7 * torch.randn(n, 3, SIZE, SIZE, device=DEVICE)
    return image.contiguous(memory_format=torch.channels_last), mask


def compute_loss(model, image, mask):
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        logits = model(image)
    return F.binary_cross_entropy_with_logits(logits.float(), mask)


@torch.no_grad()
def evaluate(model, held_out):
    model.eval()
    total = sum(compute_loss(model, image, mask) for image, mask in held_out)
    model.train()
    return total.item() / len(held_out)


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    held_out = [scenes(BATCH) for _ in range(EVAL_BATCHES)]
    model = UNet().to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory(prefix="roadmask-") as folder:
        start, step = time.time(), 0
        while time.time() - start < LIMIT:
            loss = compute_loss(model, *scenes(BATCH))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step and step % EVAL_EVERY == 0:
                print(f"validation after step {step}: {evaluate(model, held_out):.4f}", flush=True)
                path = os.path.join(folder, "last.pt")
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
                os.replace(path + ".new", path)
            step += 1


if __name__ == "__main__":
    main()
