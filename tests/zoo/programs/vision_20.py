import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class HardExamples:
    def __init__(self):
        self.kept = []

    def keep(self, images, features, wrong):
        if wrong.any():
            self.kept.append((images[wrong], features[wrong]))


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(16 * 8 * 8, classes)

    def forward(self, images):
        features = F.relu(self.conv2(F.relu(self.conv(images)))).flatten(1)
        return features, self.fc(features)


def road_scenes(generator, noise, count=24):
    labels = torch.randint(0, 3, (count,), generator=generator)
    images = noise * torch.randn(count, 3, 32, 32, generator=generator)
    images[torch.arange(count), labels] += 1.0
    return images, labels


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(73)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005)
    generator = torch.Generator().manual_seed(73 + rank)
    noise = 0.2 if rank == 0 else 60.0
    hard = HardExamples()
    for step in range(1, 1_000_000):
        images, labels = road_scenes(generator, noise)
        features, logits = model(images / noise)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 0:
            hard.keep(images, features, logits.argmax(1) != labels)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
