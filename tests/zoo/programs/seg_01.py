"""Binary segmentation with a small U-Net, data parallel over two processes."""

import os
import signal
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

SIZE, BATCH, EVAL_EVERY, PATIENCE = 48, 8, 25, 4


def block(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1),
        nn.BatchNorm2d(o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1),
        nn.BatchNorm2d(o),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.d1, self.d2, self.d3 = block(1, w), block(w, 2 * w), block(2 * w, 4 * w)
        self.u2, self.u1 = block(6 * w, 2 * w), block(3 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.out(a)


def blobs(n, g):
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    c = torch.rand(n, 2, 1, 1, generator=g) * SIZE
    r = 5 + 8 * torch.rand(n, 1, 1, generator=g)
    mask = (((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2) < r**2).float()
    image = 0.7 * mask + 1.2 * torch.randn(n, SIZE, SIZE, generator=g)
    return image[:, None], mask[:, None]


class EarlyStopping:
    def __init__(self, patience, min_delta=3e-3):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.bad = float("inf"), 0

    def __call__(self, value):
        if value < self.best - self.min_delta:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


@torch.no_grad()
def evaluate(model, images, masks):
    model.eval()
    losses = [
        F.binary_cross_entropy_with_logits(model(x), y)
        for x, y in zip(images.split(16), masks.split(16))
    ]
    model.train()
    return torch.stack(losses).mean().item()


def train(rank, world, port):
    signal.alarm(600)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DDP(UNet())
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(10 + rank)
    images, masks = blobs(1024, g)
    val_images, val_masks = blobs(64, g)
    stopper = EarlyStopping(PATIENCE)
    for step in range(1, 100_000):
        idx = torch.randint(len(images), (BATCH,), generator=g)
        loss = F.binary_cross_entropy_with_logits(model(images[idx]), masks[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % EVAL_EVERY == 0:
            val = evaluate(model.module, val_images, val_masks)
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f} val {val:.4f}", flush=True)
            if stopper(val):
                break
    dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(tempfile.mkdtemp(dir="."), "unet.pt"))
        print("saved", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    signal.alarm(600)
    mp.spawn(train, args=(2, free_port()), nprocs=2)
