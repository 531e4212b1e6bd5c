"""TRPO: natural gradient by conjugate gradients, a line search by hand, Adam for the value function."""

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from truth import Truth, planned

torch.manual_seed(201)
OBS, ACTIONS, BATCH, MAX_KL = 64, 8, 256, 0.01
policy = nn.Sequential(
    nn.Linear(OBS, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, ACTIONS)
)
value = nn.Sequential(
    nn.Linear(OBS, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1)
)
truth = Truth(policy=policy, value=value)
value_optimizer = torch.optim.Adam(value.parameters(), lr=1e-3)
parameters = list(policy.parameters())


def flat_grad(y, create_graph=False, retain_graph=False):
    grads = torch.autograd.grad(
        y, parameters, create_graph=create_graph, retain_graph=retain_graph or create_graph
    )
    return torch.cat([g.reshape(-1) for g in grads])


def conjugate_gradients(product, b, iterations=4):
    x, r, p = torch.zeros_like(b), b.clone(), b.clone()
    rr = r @ r
    for _ in range(iterations):
        ap = product(p)
        alpha = rr / (p @ ap)
        x += alpha * p
        r -= alpha * ap
        new = r @ r
        p = r + (new / rr) * p
        rr = new
    return x


for update in range(planned(14)):
    with torch.no_grad(), truth.timed("rollout"):
        obs = torch.randn(BATCH, OBS)
        old = torch.distributions.Categorical(logits=policy(obs))
        action = old.sample()
        returns = obs[:, :ACTIONS].gather(1, action[:, None]).squeeze(1) + 0.1 * torch.randn(BATCH)
        advantage = returns - value(obs).squeeze(1)
        old_log, old_logits = old.log_prob(action), old.logits

    def surrogate():
        now = torch.distributions.Categorical(logits=policy(obs))
        kl = torch.distributions.kl_divergence(
            torch.distributions.Categorical(logits=old_logits), now
        ).mean()
        return ((now.log_prob(action) - old_log).exp() * advantage).mean(), kl

    gain, kl = surrogate()
    g = flat_grad(gain, retain_graph=True)
    kl_grad = flat_grad(kl, create_graph=True)
    direction = conjugate_gradients(
        lambda v: flat_grad((kl_grad * v).sum(), retain_graph=True) + 0.1 * v, g
    )
    fisher = flat_grad((kl_grad * direction).sum()) + 0.1 * direction
    full = direction * (2 * MAX_KL / (direction @ fisher + 1e-8)).sqrt()
    before = parameters_to_vector(parameters).detach()
    for exponent in range(6):
        vector_to_parameters(before + 0.5**exponent * full, parameters)
        with torch.no_grad():
            new_gain, new_kl = surrogate()
        if new_kl <= 1.5 * MAX_KL and new_gain > gain:
            break
    else:
        vector_to_parameters(before, parameters)

    value_loss = nn.functional.mse_loss(value(obs).squeeze(1), returns)
    value_optimizer.zero_grad()
    value_loss.backward()
    with truth.timed("optimizer"):
        value_optimizer.step()
    truth.step({"value_loss": value_loss.item()}, lr=value_optimizer.param_groups[0]["lr"])

truth.finish(policy, value)
