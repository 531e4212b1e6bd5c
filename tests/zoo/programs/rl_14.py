"""Proximal policy optimisation on a batch of noisy point-mass tasks."""

import collections
import time

import torch
from torch import nn
from torch.distributions import Normal

ENVS, HORIZON, EPOCHS, MINIBATCH, GAMMA, LAMBDA = 32, 128, 4, 512, 0.98, 0.95
MAX_SECONDS = 600


class PointMass:
    """Reach a moving target; gusts make the return noisy, episodes are 40 to 160 steps."""

    def __init__(self, n):
        self.n = n
        self.state = torch.zeros(n, 6)
        self.left = torch.zeros(n, dtype=torch.long)
        self.reset(torch.ones(n, dtype=torch.bool))

    def reset(self, which):
        k = int(which.sum())
        self.state[which] = torch.cat([torch.randn(k, 2), torch.zeros(k, 2), torch.randn(k, 2)], 1)
        self.left[which] = torch.randint(40, 160, (k,))

    def step(self, a):
        pos, vel, goal = self.state.split(2, 1)
        gust = torch.where(torch.rand(self.n, 1) < 0.02, 3.0, 0.1) * torch.randn(self.n, 2)
        vel = 0.9 * vel + 0.1 * a.clamp(-2, 2) + 0.1 * gust
        pos = pos + 0.1 * vel
        goal = goal + 0.03 * torch.randn(self.n, 2)
        self.state = torch.cat([pos, vel, goal], 1)
        self.left -= 1
        done = self.left <= 0
        reward = -(pos - goal).norm(dim=1) - 0.01 * a.pow(2).sum(1)
        self.reset(done)
        return self.state.clone(), reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self, w=128):
        super().__init__()

        def mlp(out):
            return nn.Sequential(
                nn.Linear(6, w), nn.Tanh(), nn.Linear(w, w), nn.Tanh(), nn.Linear(w, out)
            )

        self.actor, self.critic = mlp(2), mlp(1)
        self.log_std = nn.Parameter(torch.zeros(2))

    def policy(self, s):
        return Normal(self.actor(s), self.log_std.exp())


def advantages(rewards, values, dones, last):
    adv, out = torch.zeros_like(last), []
    for t in reversed(range(len(rewards))):
        nxt = last if t == len(rewards) - 1 else values[t + 1]
        delta = rewards[t] + GAMMA * nxt * (1 - dones[t]) - values[t]
        adv = delta + GAMMA * LAMBDA * (1 - dones[t]) * adv
        out.insert(0, adv)
    return torch.stack(out)


def main():
    torch.manual_seed(0)
    env, net = PointMass(ENVS), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=3e-4, eps=1e-5)
    recent = collections.deque(maxlen=2000)
    s = env.state.clone()
    deadline, it = time.time() + MAX_SECONDS, 0
    while time.time() < deadline:
        roll = []
        with torch.no_grad():
            for _ in range(HORIZON):
                pi = net.policy(s)
                a = pi.sample()
                s2, r, d = env.step(a)
                roll.append((s, a, pi.log_prob(a).sum(-1), net.critic(s).squeeze(-1), r, d))
                recent.append(r.mean().item())
                s = s2
            S, A, logp, V, R, D = (torch.stack(z) for z in zip(*roll))
            adv = advantages(R, V, D, net.critic(s).squeeze(-1))
            ret = (adv + V).flatten()
        S, A, logp, adv = S.flatten(0, 1), A.flatten(0, 1), logp.flatten(), adv.flatten()
        for _ in range(EPOCHS):
            for idx in torch.randperm(len(S)).split(MINIBATCH):
                pi, g = net.policy(S[idx]), (adv[idx] - adv[idx].mean()) / (adv[idx].std() + 1e-8)
                ratio = (pi.log_prob(A[idx]).sum(-1) - logp[idx]).exp()
                actor = -torch.min(ratio * g, ratio.clamp(0.8, 1.2) * g).mean()
                critic = (net.critic(S[idx]).squeeze(-1) - ret[idx]).pow(2).mean()
                loss = actor + 0.5 * critic - 0.003 * pi.entropy().sum(-1).mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
        it += 1
        if it % 5 == 0:
            print(
                f"step {it} reward {sum(recent) / len(recent):.3f} policy {actor.item():.4f} "
                f"value {critic.item():.3f} std {net.log_std.exp().mean().item():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
