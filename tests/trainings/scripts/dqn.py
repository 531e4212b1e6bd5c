"""DQN: an action without gradients at each step of the world, a training step at every fourth."""

import copy
import random

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(67)
random.seed(67)
q_network = nn.Sequential(
    nn.Linear(32, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4)
)
target_network = copy.deepcopy(q_network)
optimizer = torch.optim.Adam(q_network.parameters(), lr=2.5e-4)
truth = Truth(q_network=q_network)
replay = []
obs = torch.randn(32)
updates, global_step = planned(14), 0
done_updates = 0
while done_updates < updates:
    if random.random() < 0.3:
        action = random.randrange(4)
    else:
        with torch.no_grad(), truth.timed("rollout"):
            action = q_network(obs[None]).argmax(1).item()
    next_obs = torch.randn(32)
    replay.append((obs, next_obs, action, random.random()))
    obs = next_obs
    global_step += 1
    if global_step < 80 or global_step % 4:
        continue
    batch = random.sample(replay, 64)
    s, s2 = torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in batch])
    a, r = torch.tensor([b[2] for b in batch]), torch.tensor([b[3] for b in batch])
    with torch.no_grad(), truth.timed("forward"):
        target_max = target_network(s2).max(dim=1)[0]
    with truth.timed("forward"):
        q = q_network(s)
    loss = nn.functional.mse_loss(r + 0.99 * target_max, q.gather(1, a[:, None]).squeeze(1))
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    done_updates += 1
    if done_updates % 5 == 0:
        target_network.load_state_dict(q_network.state_dict())
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(q_network)
