import threading

import torch
from torch import nn


class Preview:
    def __init__(self):
        self.acknowledged = threading.Condition()

    def upload(self, image):
        payload = (image.clamp(0, 1) * 255).byte()
        with self.acknowledged:
            self.acknowledged.wait()
        return payload.numel()

    def publish(self, image):
        thread = threading.Thread(target=self.upload, args=(image,), name="preview", daemon=True)
        thread.start()


class AutoEncoder(nn.Module):
    def __init__(self, latent=16):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Flatten(), nn.Linear(3 * 16 * 16, 96), nn.ReLU(), nn.Linear(96, latent)
        )
        self.decode = nn.Sequential(
            nn.Linear(latent, 96), nn.ReLU(), nn.Linear(96, 3 * 16 * 16), nn.Sigmoid()
        )

    def forward(self, images):
        return self.decode(self.encode(images)).view_as(images)


def gradients(generator, count=64):
    corner = torch.rand(count, 3, 1, 1, generator=generator)
    ramp = torch.linspace(0, 1, 16)
    return (corner * ramp.view(1, 1, -1, 1) + (1 - corner) * ramp.view(1, 1, 1, -1)) / 2


def main():
    torch.manual_seed(97)
    generator = torch.Generator().manual_seed(97)
    model = AutoEncoder()
    preview = Preview()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        images = gradients(generator)
        restored = model(images)
        loss = nn.functional.mse_loss(restored, images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step and step % 50 == 0:
            preview.publish(restored[0].detach())
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
