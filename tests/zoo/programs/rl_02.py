"""Behaviour cloning from a small set of demonstrations."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Demonstrations(Dataset):
    def __init__(self, episodes=48, horizon=12):
        generator = torch.Generator().manual_seed(26)
        self.states = torch.randn(episodes, horizon, 17, generator=generator)
        mixing = torch.randn(17, 6, generator=generator)
        self.actions = torch.tanh(self.states @ mixing)

    def __len__(self):
        return len(self.states)

    def __getitem__(self, index):
        jitter = 0.01 * torch.randn_like(self.states[index])
        return self.states[index] + jitter, self.actions[index]


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.GRU(17, 64, batch_first=True)
        self.policy = nn.Sequential(nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 6), nn.Tanh())

    def forward(self, states):
        hidden, _ = self.memory(states)
        return self.policy(hidden)


def main():
    torch.manual_seed(26)
    loader = DataLoader(Demonstrations(), batch_size=8, shuffle=True, num_workers=2)
    actor = Actor()
    optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.999)
    step = 0
    for epoch in range(100_000):
        for states, actions in loader:
            loss = nn.functional.mse_loss(actor(states), actions)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 6 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        scheduler.step()


if __name__ == "__main__":
    main()
