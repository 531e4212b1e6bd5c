import torch
from torch import nn


class FeatureRecorder:
    """Keeps feature maps for a look at them in the notebook."""

    def __init__(self):
        self.maps = []
        self.calls = 0

    def __call__(self, module, inputs, output):
        self.calls += 1
        if self.calls % 4 == 1:
            self.maps.append(output.detach().clone())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.layer2 = nn.Sequential(
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.layer3 = nn.Sequential(
            nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.fc = nn.Linear(16, 6)

    def forward(self, images):
        hidden = self.layer3(self.layer2(self.layer1(images)))
        return self.fc(hidden.mean((2, 3)))


def weather_images(generator, count=16):
    labels = torch.randint(0, 6, (count,), generator=generator)
    images = torch.rand(count, 3, 32, 32, generator=generator)
    images[:, 2] *= 0.4 + 0.1 * labels.view(-1, 1, 1)
    return images, labels


def main():
    torch.manual_seed(81)
    generator = torch.Generator().manual_seed(81)
    model = Net()
    recorder = FeatureRecorder()
    model.layer2.register_forward_hook(recorder)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    for step in range(1, 1_000_000):
        images, labels = weather_images(generator)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            active = (recorder.maps[-1] > 0).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} active {active:.2f}", flush=True)


if __name__ == "__main__":
    main()
