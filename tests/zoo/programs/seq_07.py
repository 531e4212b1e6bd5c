"""Three stages of a network on three ranks, with point-to-point messages."""

import torch
import torch.distributed as dist
from torch import nn

WIDTH, BATCH = 128, 64


def stage(rank):
    torch.manual_seed(rank)
    if rank == 0:
        return nn.Sequential(nn.Linear(20, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    if rank == 1:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))


def receive(source):
    buffer = torch.empty(BATCH, WIDTH)
    dist.recv(buffer, src=source)
    return buffer


def main():
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    model = stage(rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(7)
    rule = torch.randn(20, 4, generator=generator)
    for step in range(1_000_000):
        rows = torch.randn(BATCH, 20, generator=generator)
        labels = (rows @ rule).argmax(1)
        inputs = rows if rank == 0 else receive(rank - 1).requires_grad_()
        outputs = model(inputs)
        optimizer.zero_grad()
        if rank == last:
            loss = nn.functional.cross_entropy(outputs, labels)
            loss.backward()
        else:
            dist.send(outputs.detach(), dst=rank + 1)
            outputs.backward(receive(rank + 1))
        if rank > 0:
            dist.send(inputs.grad, dst=rank - 1)
        optimizer.step()
        if rank == last and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
