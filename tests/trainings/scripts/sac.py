"""Soft actor-critic: critics, actor and temperature, an optimizer each; targets by Polyak."""

import copy

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(66)


def mlp(inp, out):
    return nn.Sequential(
        nn.Linear(inp, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, out)
    )


actor, qf1, qf2 = mlp(24, 8), mlp(28, 1), mlp(28, 1)
qf1_target, qf2_target = copy.deepcopy(qf1), copy.deepcopy(qf2)
log_alpha = torch.zeros(1, requires_grad=True)
q_optimizer = torch.optim.Adam(list(qf1.parameters()) + list(qf2.parameters()), lr=1e-3)
actor_optimizer = torch.optim.Adam(list(actor.parameters()), lr=3e-4)
a_optimizer = torch.optim.Adam([log_alpha], lr=1e-3)
truth = Truth(actor=actor, qf1=qf1, qf2=qf2)


def get_action(obs):
    mean, log_std = actor(obs).chunk(2, dim=-1)
    dist = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
    x = dist.rsample()
    return torch.tanh(x), dist.log_prob(x).sum(1, keepdim=True)


obs = torch.randn(1, 24)
for global_step in range(planned(14)):
    with torch.no_grad(), truth.timed("rollout"):
        action, _ = get_action(obs)
    obs = torch.randn(1, 24)
    s, s2, a, r = torch.randn(48, 24), torch.randn(48, 24), torch.randn(48, 4), torch.randn(48, 1)
    with torch.no_grad():
        with truth.timed("forward"):
            next_a, next_logp = get_action(s2)
        sa2 = torch.cat([s2, next_a], 1)
        with truth.timed("forward"):
            q1n = qf1_target(sa2)
        with truth.timed("forward"):
            q2n = qf2_target(sa2)
        target = r + 0.99 * (torch.min(q1n, q2n) - log_alpha.exp() * next_logp)
    sa = torch.cat([s, a], 1)
    with truth.timed("forward"):
        q1 = qf1(sa)
    with truth.timed("forward"):
        q2 = qf2(sa)
    qf_loss = nn.functional.mse_loss(q1, target) + nn.functional.mse_loss(q2, target)
    q_optimizer.zero_grad()
    with truth.timed("backward"):
        qf_loss.backward()
    with truth.timed("optimizer"):
        q_optimizer.step()

    with truth.timed("forward"):
        pi, logp = get_action(s)
    sp = torch.cat([s, pi], 1)
    with truth.timed("forward"):
        q1 = qf1(sp)
    with truth.timed("forward"):
        q2 = qf2(sp)
    actor_loss = (log_alpha.exp().detach() * logp - torch.min(q1, q2)).mean()
    actor_optimizer.zero_grad()
    with truth.timed("backward"):
        actor_loss.backward()
    with truth.timed("optimizer"):
        actor_optimizer.step()

    with torch.no_grad(), truth.timed("forward"):
        _, logp = get_action(s)
    alpha_loss = (-log_alpha.exp() * (logp - 4)).mean()
    a_optimizer.zero_grad()
    with truth.timed("backward"):
        alpha_loss.backward()
    with truth.timed("optimizer"):
        a_optimizer.step()
    with torch.no_grad():
        for net, tgt in ((qf1, qf1_target), (qf2, qf2_target)):
            for p, t in zip(net.parameters(), tgt.parameters()):
                t.data.copy_(0.005 * p.data + 0.995 * t.data)
    truth.step(
        {"qf": qf_loss.item(), "actor": actor_loss.item(), "alpha": alpha_loss.item()},
        lr={
            "q_optimizer": q_optimizer.param_groups[0]["lr"],
            "actor_optimizer": actor_optimizer.param_groups[0]["lr"],
            "a_optimizer": a_optimizer.param_groups[0]["lr"],
        },
    )

truth.finish(actor, qf1, qf2)
