import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--eval-every", type=int, default=100)
    return parser.parse_args()


def build_model():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(28 * 28, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = seen = 0
    for images, labels in loader:
        correct += (model.module(images).argmax(1) == labels).sum().item()
        seen += len(labels)
    dist.barrier()
    model.train()
    return correct / seen


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1234)
    images = torch.randn(2048, 1, 28, 28)
    labels = (images.flatten(1)[:, :10]).argmax(1)
    train = TensorDataset(images[:1536], labels[:1536])
    valid = TensorDataset(images[1536:], labels[1536:])
    sampler = DistributedSampler(train, shuffle=True)
    train_loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler)
    valid_loader = DataLoader(valid, batch_size=128)
    model = DDP(build_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for batch, target in train_loader:
            loss = criterion(model(batch), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0 and rank == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            if step % args.eval_every == 0 and rank == 0:
                print(f"accuracy {evaluate(model, valid_loader):.3f}", flush=True)


main()
