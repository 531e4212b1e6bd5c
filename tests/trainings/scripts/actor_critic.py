"""An actor and two critics after SAC and TD3: an optimizer each, targets by Polyak."""

import copy

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(48)
TAU = 0.005


def mlp(inp, out):
    return nn.Sequential(
        nn.Linear(inp, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, out)
    )


actor, critic_1, critic_2 = mlp(24, 4), mlp(28, 1), mlp(28, 1)
actor_target, critic_target = copy.deepcopy(actor), copy.deepcopy(critic_1)
truth = Truth(actor=actor, critic_1=critic_1, critic_2=critic_2)
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
critic_optimizer = torch.optim.Adam([*critic_1.parameters(), *critic_2.parameters()], lr=1e-3)

for t in range(planned(16)):
    state, next_state = torch.randn(48, 24), torch.randn(48, 24)
    action, reward = torch.randn(48, 4), torch.randn(48, 1)
    with torch.no_grad(), truth.timed("forward"):
        target_q = reward + 0.99 * critic_target(
            torch.cat([next_state, actor_target(next_state)], 1)
        )
    sa = torch.cat([state, action], 1)
    with truth.timed("forward"):
        q1 = critic_1(sa)
    with truth.timed("forward"):
        q2 = critic_2(sa)
    critic_loss = nn.functional.mse_loss(q1, target_q) + nn.functional.mse_loss(q2, target_q)
    critic_optimizer.zero_grad()
    with truth.timed("backward"):
        critic_loss.backward()
    with truth.timed("optimizer"):
        critic_optimizer.step()
    with truth.timed("forward"):
        proposed = actor(state)
    with truth.timed("forward"):
        value = critic_1(torch.cat([state, proposed], 1))
    actor_loss = -value.mean()
    actor_optimizer.zero_grad()
    with truth.timed("backward"):
        actor_loss.backward()
    with truth.timed("optimizer"):
        actor_optimizer.step()
    with torch.no_grad():
        for net, target in ((actor, actor_target), (critic_1, critic_target)):
            for p, p_target in zip(net.parameters(), target.parameters()):
                p_target.lerp_(p, TAU)
    truth.step(
        {"critic_loss": critic_loss.item(), "actor_loss": actor_loss.item()},
        lr={
            "actor_optimizer": actor_optimizer.param_groups[0]["lr"],
            "critic_optimizer": critic_optimizer.param_groups[0]["lr"],
        },
    )

truth.finish(actor, critic_1, critic_2)
