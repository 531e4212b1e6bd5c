"""Two-tower ranking. Rank 0 trains; rank 1 scores the whole catalogue with weights it is sent."""

import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

USERS, ITEMS, DIM, EVAL_EVERY, STEPS = 3000, 1500, 48, 250, 30_000
STOP = -1


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, DIM), nn.Embedding(ITEMS, DIM)
        tower = lambda: nn.Sequential(nn.Linear(DIM, 128), nn.ReLU(), nn.Linear(128, DIM))
        self.user_tower, self.item_tower = tower(), tower()

    def user(self, u):
        return F.normalize(self.user_tower(self.users(u)), dim=-1)

    def item(self, i):
        return F.normalize(self.item_tower(self.items(i)), dim=-1)

    def forward(self, u, i):
        return self.user(u) @ self.item(i).t() / 0.1


def clicks(seed=23):
    """Users and items have hidden groups; most clicks stay within the group."""
    g = torch.Generator().manual_seed(seed)
    ug, ig = torch.arange(USERS) % 30, torch.arange(ITEMS) % 30
    u = torch.randint(USERS, (120_000,), generator=g)
    inside = ug[u] + 30 * torch.randint(ITEMS // 30, u.shape, generator=g)
    i = torch.where(
        torch.rand(u.shape, generator=g) < 0.8, inside, torch.randint(ITEMS, u.shape, generator=g)
    )
    return u, i, ug, ig


def train_rank(model, u, i):
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(1, STEPS + 1):
        pick = torch.randint(len(u), (512,))
        logits = model(u[pick], i[pick])
        loss = F.cross_entropy(logits, torch.arange(len(pick)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step % EVAL_EVERY == 0:
            dist.send(torch.tensor([step]), dst=1)
            dist.send(parameters_to_vector(model.parameters()).detach(), dst=1)
    dist.send(torch.tensor([STOP]), dst=1)


@torch.no_grad()
def score_rank(model, ug, ig):
    model.eval()
    flat = parameters_to_vector(model.parameters()).detach().clone()
    note = torch.zeros(1, dtype=torch.long)
    while True:
        dist.recv(note, src=0)
        if note.item() == STOP:
            return
        dist.recv(flat, src=0)
        vector_to_parameters(flat, model.parameters())
        begun, hits = time.time(), 0.0
        catalogue = model.item(torch.arange(ITEMS))
        for chunk in torch.arange(USERS).split(100):
            top = (model.user(chunk) @ catalogue.t()).topk(20, dim=1).indices
            hits += (ig[top] == ug[chunk][:, None]).float().mean(1).sum().item()
        print(
            f"  eval @ step {note.item()}: precision@20 {hits / USERS:.3f} in {time.time() - begun:.2f}s",
            flush=True,
        )


def main():
    torch.set_num_threads(1)
    torch.manual_seed(23)
    dist.init_process_group("gloo")
    u, i, ug, ig = clicks()
    model = TwoTower()
    train_rank(model, u, i) if dist.get_rank() == 0 else score_rank(model, ug, ig)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
