import torch
import torch.distributed as dist
from torch import nn


class ThinBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, hidden):
        return hidden + torch.relu(self.linear(self.norm(hidden)))


class DeepNet(nn.Module):
    def __init__(self, width=24, depth=60):
        super().__init__()
        self.stem = nn.Linear(10, width)
        self.blocks = nn.Sequential(*[ThinBlock(width) for _ in range(depth)])
        self.head = nn.Linear(width, 1)

    def forward(self, rows):
        return self.head(self.blocks(self.stem(rows))).squeeze(-1)


def average_gradients(model):
    size = dist.get_world_size()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= size


def broadcast_parameters(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DeepNet()
    broadcast_parameters(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for step in range(1_000_000):
        rows = torch.randn(64, 10)
        loss = nn.functional.mse_loss(model(rows), rows[:, 0] - rows[:, 1])
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
