"""Dreamer in small: a recurrent world model, then actor and critic learn in what it imagines."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(211)
OBS, ACT, HID, BATCH, LENGTH, HORIZON = 32, 4, 256, 16, 8, 5


class WorldModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(OBS, HID)
        self.cell = nn.GRUCell(HID + ACT, HID)
        self.decoder = nn.Linear(HID, OBS)
        self.reward = nn.Linear(HID, 1)

    def observe(self, obs, actions):
        h, losses = obs.new_zeros(obs.shape[1], HID), 0.0
        states = []
        for t in range(obs.shape[0]):
            h = self.cell(torch.cat([self.encoder(obs[t]), actions[t]], 1), h)
            losses = losses + nn.functional.mse_loss(self.decoder(h), obs[t])
            losses = losses + nn.functional.mse_loss(self.reward(h), obs[t].mean(1, keepdim=True))
            states.append(h)
        return torch.cat(states), losses / obs.shape[0]

    def imagine(self, h, action):
        return self.cell(torch.cat([torch.zeros_like(h), action], 1), h)


world_model = WorldModel()
actor = nn.Sequential(nn.Linear(HID, 256), nn.ELU(), nn.Linear(256, ACT), nn.Tanh())
critic = nn.Sequential(nn.Linear(HID, 256), nn.ELU(), nn.Linear(256, 1))
truth = Truth(world_model=world_model, actor=actor, critic=critic)
model_opt = torch.optim.Adam(world_model.parameters(), lr=6e-4)
actor_opt = torch.optim.Adam(actor.parameters(), lr=8e-5)
critic_opt = torch.optim.Adam(critic.parameters(), lr=9e-5)
for step in range(planned(14)):
    with torch.no_grad(), truth.timed("rollout"):  # acts in the environment, as it learns
        h = torch.zeros(1, HID)
        for _ in range(4):
            action = actor(h)
            h = world_model.imagine(h, action)
    obs, actions = torch.randn(LENGTH, BATCH, OBS), torch.randn(LENGTH, BATCH, ACT).tanh()
    states, model_loss = world_model.observe(obs, actions)
    model_opt.zero_grad()
    model_loss.backward()
    nn.utils.clip_grad_norm_(world_model.parameters(), 100.0)
    model_opt.step()

    h, imagined, rewards = states.detach(), [], []
    for _ in range(HORIZON):
        h = world_model.imagine(h, actor(h))
        imagined.append(h)
        rewards.append(world_model.reward(h).squeeze(1))
    returns, value = [], critic(imagined[-1]).squeeze(1)
    for reward in reversed(rewards):
        value = reward + 0.95 * value
        returns.append(value)
    returns = torch.stack(returns[::-1])
    actor_loss = -returns.mean()
    actor_opt.zero_grad()
    actor_loss.backward()
    actor_opt.step()

    values = critic(torch.stack(imagined).detach()).squeeze(2)
    critic_loss = nn.functional.mse_loss(values, returns.detach())
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()
    truth.step(
        {"model": model_loss.item(), "actor": actor_loss.item(), "critic": critic_loss.item()},
        lr={
            "model_opt": model_opt.param_groups[0]["lr"],
            "actor_opt": actor_opt.param_groups[0]["lr"],
            "critic_opt": critic_opt.param_groups[0]["lr"],
        },
    )

truth.finish(world_model, actor, critic)
