"""A detector fed with images of different shapes; it returns a dictionary of losses in training."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import Truth, planned

torch.manual_seed(23)


class Scenes(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        height, width = (int(v) for v in torch.randint(24, 64, (2,), generator=generator))
        image = torch.rand(3, height, width, generator=generator)
        boxes = torch.rand(
            int(torch.randint(1, 5, (1,), generator=generator)), 4, generator=generator
        )
        return image, {"boxes": boxes, "labels": torch.ones(len(boxes), dtype=torch.long)}


class Detector(nn.Module):
    def __init__(self, c=48):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, c, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(0),
        )  # fmt: skip
        self.box_head = nn.Linear(32 * c, 4)
        self.cls_head = nn.Linear(32 * c, 2)

    def forward(self, images, targets):
        features = torch.stack([self.backbone(image[None]) for image in images])
        boxes, logits = self.box_head(features), self.cls_head(features)
        wanted = torch.stack([t["boxes"].mean(0) for t in targets])
        counts = torch.tensor([len(t["labels"]) > 2 for t in targets]).long()
        return {
            "loss_box_reg": nn.functional.smooth_l1_loss(boxes, wanted),
            "loss_classifier": nn.functional.cross_entropy(logits, counts),
        }


model = Detector()
truth = Truth(model=model)
params = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(params, lr=0.005, momentum=0.9, weight_decay=5e-4)
data_loader = DataLoader(
    Scenes(), batch_size=6, shuffle=True, collate_fn=lambda batch: tuple(zip(*batch))
)
steps, step = planned(14), 0
while step < steps:
    for images, targets in data_loader:
        with truth.timed("forward"):
            loss_dict = model(images, targets)
        losses = sum(loss for loss in loss_dict.values())
        optimizer.zero_grad()
        with truth.timed("backward"):
            losses.backward()
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(losses.item(), lr=optimizer.param_groups[0]["lr"])
        step += 1
        if step == steps:
            break

truth.finish(model)
