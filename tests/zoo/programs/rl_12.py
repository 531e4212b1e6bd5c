"""Double DQN that balances a pole; the environment is written out below."""

import collections
import copy
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 3
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)
torch.set_num_threads(1)

Transition = collections.namedtuple("Transition", "state action reward following done")


class CartPole:
    def reset(self):
        self.s = np.random.uniform(-0.05, 0.05, 4)
        self.t = 0
        return self.s.astype(np.float32)

    def step(self, action):
        x, v, a, w = self.s
        force = 10.0 if action == 1 else -10.0
        c, s = math.cos(a), math.sin(a)
        tmp = (force + 0.05 * w * w * s) / 1.1
        alpha = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        acc = tmp - 0.05 * alpha * c / 1.1
        self.s = np.array([x + 0.02 * v, v + 0.02 * acc, a + 0.02 * w, w + 0.02 * alpha])
        self.t += 1
        fell = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.2095
        return self.s.astype(np.float32), 1.0, fell, self.t >= 400


class QNet(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.value = nn.Linear(hidden, 1)
        self.advantage = nn.Linear(hidden, 2)

    def forward(self, s):
        h = self.body(s)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


def learn(online, target, opt, memory, gamma=0.99, batch=192):
    chosen = Transition(*zip(*random.sample(memory, batch)))
    s, nxt = torch.stack(chosen.state), torch.stack(chosen.following)
    a = torch.tensor(chosen.action).unsqueeze(1)
    r, done = torch.tensor(chosen.reward), torch.tensor(chosen.done, dtype=torch.float32)
    q = online(s).gather(1, a).squeeze(1)
    with torch.no_grad():
        best = online(nxt).argmax(1, keepdim=True)
        goal = r + gamma * (1 - done) * target(nxt).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(q, goal)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    opt.step()
    return loss.item(), q.mean().item()


def main():
    env, online = CartPole(), QNet()
    target = copy.deepcopy(online)
    opt = torch.optim.Adam(online.parameters(), lr=5e-4)
    memory = collections.deque(maxlen=20000)
    returns = collections.deque(maxlen=20)
    step, state = 0, torch.from_numpy(env.reset())
    while True:
        epsilon = max(0.03, 1 - step / 1500)
        if random.random() < epsilon:
            action = random.randrange(2)
        else:
            with torch.no_grad():
                action = int(online(state.unsqueeze(0)).argmax())
        nxt, reward, fell, over = env.step(action)
        nxt = torch.from_numpy(nxt)
        memory.append(Transition(state, action, reward, nxt, fell))
        state = nxt
        if fell or over:
            returns.append(env.t)
            state = torch.from_numpy(env.reset())
        if len(memory) < 400:
            continue
        step += 1
        loss, q = learn(online, target, opt, memory)
        if step % 250 == 0:
            target.load_state_dict(online.state_dict())
        if step % 100 == 0:
            mean = sum(returns) / max(1, len(returns))
            print(
                f"step {step} loss {loss:.4f} q {q:.2f} return {mean:.1f} eps {epsilon:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
