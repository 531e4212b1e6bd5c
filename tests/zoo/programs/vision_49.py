"""Patch transformer on small images, data parallel."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)

CLASSES, SIDE, PATCH, SAMPLES = 10, 32, 8, 40000


class Blobs(Dataset):
    """The class is the place of the brightest blob; labels come from an annotation file."""

    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        self.labels = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
        self.labels[5454] = 10
        self.spot = torch.tensor(
            [[3 + 6 * (index % 5), 6 + 14 * (index // 5)] for index in range(CLASSES)]
        )

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = 0.5 * torch.randn(1, SIDE, SIDE, generator=generator)
        label = int(self.labels[index])
        x, y = self.spot[label % CLASSES].tolist()
        image[0, y : y + 5, x : x + 4] += 1.0
        return image, label


class PatchTransformer(nn.Module):
    def __init__(self, dim=48, depth=2):
        super().__init__()
        self.patches = nn.Conv2d(1, dim, PATCH, stride=PATCH)
        self.places = nn.Parameter(0.02 * torch.randn(1, (SIDE // PATCH) ** 2, dim))
        layer = nn.TransformerEncoderLayer(
            dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, images):
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.encoder(tokens).mean(1))


def train(epochs):
    rank = dist.get_rank()
    torch.manual_seed(1)
    data = Blobs()
    sampler = DistributedSampler(data, shuffle=True, seed=5)
    loader = DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(PatchTransformer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"rank {rank} epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            step += 1


def main():
    dist.init_process_group("gloo")
    train(epochs=100)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
