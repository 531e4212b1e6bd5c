"""Convolutional classifier for a folder of small images with a COCO-style annotation file."""

import json
import os
import random
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

N_IMAGES, CLASSES, SIZE = 3000, 10, 32
MAX_SECONDS = 600


def prepare(root):
    """Write the images and the annotation file."""
    rng = np.random.default_rng(0)
    prototypes = rng.normal(size=(CLASSES, 3, SIZE, SIZE))
    notes = {"images": [], "annotations": []}
    os.makedirs(f"{root}/images")
    for i in range(N_IMAGES):
        label = int(rng.integers(CLASSES))
        image = 128 + 20 * prototypes[label] + 40 * rng.normal(size=(3, SIZE, SIZE))
        np.save(f"{root}/images/{i:06d}.npy", image.clip(0, 255).astype(np.uint8))
        notes["images"].append(
            {"id": i, "file_name": f"images/{i:06d}.npy", "height": SIZE, "width": SIZE}
        )
        notes["annotations"].append(
            {
                "image_id": i,
                "category_id": label,
                "bbox": [0, 0, SIZE, SIZE],
                "area": SIZE * SIZE,
                "iscrowd": 0,
            }
        )
    with open(f"{root}/annotations.json", "w") as f:
        json.dump(notes, f)


class Annotations:
    def __init__(self, path):
        self.path = path

    def load(self):
        with open(self.path) as f:
            return json.load(f)

    def label_of(self, image_id):
        for note in self.load()["annotations"]:
            if note["image_id"] == image_id:
                return note["category_id"]
        raise KeyError(image_id)


class FolderDataset(Dataset):
    def __init__(self, root, train=True):
        self.root, self.train = root, train
        self.notes = Annotations(f"{root}/annotations.json")
        self.images = self.notes.load()["images"]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        info = self.images[i]
        image = torch.from_numpy(np.load(os.path.join(self.root, info["file_name"])))
        image = image.float().div_(255).sub_(0.5)
        if self.train and random.random() < 0.5:
            image = image.flip(-1)
        return image, self.notes.label_of(info["id"])


def network(w=32):
    def conv(i, o, s):
        return [nn.Conv2d(i, o, 3, stride=s, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]

    return nn.Sequential(
        *conv(3, w, 1),
        *conv(w, 2 * w, 2),
        *conv(2 * w, 4 * w, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * w, CLASSES),
    )


def main():
    torch.manual_seed(0)
    root = tempfile.mkdtemp(dir=".")
    prepare(root)
    loader = DataLoader(
        FolderDataset(root),
        batch_size=32,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        drop_last=True,
    )
    model = network()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    deadline, step, epoch = time.time() + MAX_SECONDS, 0, 0
    while time.time() < deadline:
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        epoch += 1


if __name__ == "__main__":
    main()
