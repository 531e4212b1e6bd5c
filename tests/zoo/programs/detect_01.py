"""Single-stage object detector on a coarse grid, two data-parallel processes."""

import os
import signal
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

SIZE, GRID, BATCH, SCENES = 64, 8, 8, 6000
MAX_SECONDS = 600


def scene(i):
    """An image and its boxes (x1, y1, x2, y2), always the same for the same index."""
    g = torch.Generator().manual_seed(40_000 + i)
    image = 0.2 * torch.randn(3, SIZE, SIZE, generator=g)
    crowd = torch.poisson(torch.tensor(7.5), generator=g).clamp(max=12)
    boxes = []
    for _ in range(int(crowd)):
        w, h = torch.randint(8, 24, (2,), generator=g).tolist()
        x, y = (torch.rand(2, generator=g) * (SIZE - 24)).long().tolist()
        image[int(torch.randint(3, (1,), generator=g)), y : y + h, x : x + w] += 1.0
        boxes.append(torch.tensor([x, y, x + w, y + h], dtype=torch.float32))
    return image, boxes


def encode(boxes):
    """Objectness and box offsets on the grid, larger boxes first so that small ones win a cell."""
    boxes = torch.stack(boxes)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    boxes = boxes[area.argsort(descending=True)]
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    cell = (centre / SIZE * GRID).long().clamp(max=GRID - 1)
    obj, reg = torch.zeros(GRID, GRID), torch.zeros(4, GRID, GRID)
    obj[cell[:, 1], cell[:, 0]] = 1.0
    reg[:, cell[:, 1], cell[:, 0]] = (boxes / SIZE).T
    return obj, reg


class Detector(nn.Module):
    def __init__(self, w=16):
        super().__init__()

        def conv(i, o):
            return [nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU()]

        self.body = nn.Sequential(*conv(3, w), *conv(w, 2 * w), *conv(2 * w, 4 * w))
        self.head = nn.Conv2d(4 * w, 5, 3, padding=1)

    def forward(self, x):
        out = self.head(self.body(x))
        return out[:, 0], out[:, 1:]


def train(rank, world, port):
    signal.alarm(MAX_SECONDS + 20)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DDP(Detector())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    started, step, epoch = time.time(), 0, 0
    while True:
        order = torch.randperm(SCENES, generator=torch.Generator().manual_seed(epoch))[rank::world]
        for chunk in order.split(BATCH):
            images, boxes = zip(*[scene(i) for i in chunk.tolist()])
            obj, reg = (torch.stack(z) for z in zip(*[encode(b) for b in boxes]))
            p_obj, p_reg = model(torch.stack(images))
            found = F.binary_cross_entropy_with_logits(p_obj, obj, pos_weight=torch.tensor(5.0))
            box = (
                F.smooth_l1_loss(p_reg, reg, reduction="none", beta=0.1).sum(1) * obj
            ).sum() / obj.sum()
            loss = found + 2 * box
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 50 == 0:
                stop = torch.tensor(float(time.time() - started > MAX_SECONDS))
                dist.broadcast(stop, 0)
                if rank == 0:
                    print(f"step {step} obj {found.item():.3f} box {box.item():.3f}", flush=True)
                if stop:
                    dist.destroy_process_group()
                    return
        epoch += 1


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(train, args=(2, free_port()), nprocs=2)
