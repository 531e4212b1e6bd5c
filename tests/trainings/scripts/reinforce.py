"""REINFORCE on a cart and a pole, after pytorch/examples/reinforcement_learning."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical
from truth import Truth, planned

torch.manual_seed(543)


class CartPole:
    """The physics that everybody knows, without gym."""

    def reset(self):
        self.state = (torch.rand(4) - 0.5) * 0.1
        return self.state

    def step(self, action):
        x, v, angle, spin = self.state.tolist()
        push = 10.0 if action == 1 else -10.0
        accel = (9.8 * angle - 0.9 * push / 1.1) / 0.7
        v, spin = v + 0.02 * push, spin + 0.02 * accel
        x, angle = x + 0.02 * v, angle + 0.02 * spin
        self.state = torch.tensor([x, v, angle, spin])
        return self.state, 1.0, abs(angle) > 0.21 or abs(x) > 2.4


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 1024)
        self.hidden = nn.Linear(1024, 1024)
        self.affine2 = nn.Linear(1024, 2)

    def forward(self, x):
        x = F.relu(self.hidden(F.relu(self.affine1(x))))
        return F.softmax(self.affine2(x), dim=1)


env = CartPole()
policy = Policy()
truth = Truth(policy=policy)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)


def select_action(state):
    with truth.timed("forward"):
        probs = policy(state.unsqueeze(0))
    m = Categorical(probs)
    action = m.sample()
    return action.item(), m.log_prob(action)


for i_episode in range(planned(14)):
    state, rewards, log_probs = env.reset(), [], []
    for _ in range(30):  # as many at most, so that episodes are alike
        action, log_prob = select_action(state)
        state, reward, done = env.step(action)
        log_probs.append(log_prob)
        rewards.append(reward)
        if done:
            break
    R, returns = 0.0, []
    for r in rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    policy_loss = torch.cat([-lp * R for lp, R in zip(log_probs, returns)]).sum()
    optimizer.zero_grad()
    with truth.timed("backward"):
        policy_loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    truth.step(policy_loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(policy)
