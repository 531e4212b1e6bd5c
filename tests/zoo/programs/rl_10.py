import random
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(3)
random.seed(3)

SIZE, STACK, CAPACITY = 16, 4, 6000


class Catch:
    """A ball falls; the paddle (three wide) on the last row has to be under it."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def _frame(self):
        frame = np.zeros((SIZE, SIZE), dtype=np.float32)
        frame[self.row, self.column] = 1.0
        frame[SIZE - 1, max(0, self.paddle - 1) : self.paddle + 2] = 0.5
        return frame

    def reset(self):
        self.row, self.column = 0, int(self.rng.integers(SIZE))
        self.paddle = int(self.rng.integers(SIZE))
        self.frames = deque([self._frame()] * STACK, maxlen=STACK)
        return np.stack(self.frames)

    def step(self, action):
        before = abs(self.column - self.paddle)
        self.paddle = min(SIZE - 1, max(0, self.paddle + action - 1))
        away = abs(self.column - self.paddle)
        self.row += 1
        self.frames.append(self._frame())
        done = self.row == SIZE - 1
        reward = (1.0 if away <= 1 else -1.0) if done else 0.2 * (before - away)
        return np.stack(self.frames), reward, done


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(STACK, 16, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(288, 128),
            nn.ReLU(),
            nn.Linear(128, 3),
        )

    def forward(self, state):
        return self.body(state)


class Agent:
    def __init__(self):
        self.online, self.target = QNet(), QNet()
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3)
        self.memory = deque(maxlen=CAPACITY)

    def act(self, states, epsilon):
        with torch.no_grad():
            best = self.online(torch.from_numpy(np.stack(states))).argmax(1).tolist()
        return [random.randrange(3) if random.random() < epsilon else action for action in best]

    def learn(self, batch=64, gamma=0.97):
        picks = random.sample(range(len(self.memory)), batch)
        rows = [self.memory[index] for index in picks]
        state = torch.from_numpy(np.stack([row[0] for row in rows]))
        after = torch.from_numpy(np.stack([row[3] for row in rows]))
        action = torch.tensor([row[1] for row in rows])
        reward = torch.tensor([row[2] for row in rows])
        going = torch.tensor([0.0 if row[4] else 1.0 for row in rows])
        with torch.no_grad():
            goal = reward + gamma * going * self.target(after).max(1).values
        value = self.online(state).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(value, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    agent = Agent()
    envs = [Catch(seed) for seed in range(12)]
    states = [env.reset() for env in envs]
    results = deque(maxlen=300)
    loss = 0.0
    for step in range(1_000_000):
        epsilon = max(0.05, 1.0 - step / 600)
        for index, action in enumerate(agent.act(states, epsilon)):
            after, reward, done = envs[index].step(action)
            agent.memory.append((states[index], action, reward, after, done))
            states[index] = envs[index].reset() if done else after
            if done:
                results.append(reward)
        if step >= 40:
            loss = agent.learn()
        if step % 100 == 0:
            agent.target.load_state_dict(agent.online.state_dict())
        if step % 50 == 0:
            score = sum(results) / max(1, len(results))
            print(
                f"step {step} loss {loss:.4f} return {score:.2f} epsilon {epsilon:.2f}", flush=True
            )


if __name__ == "__main__":
    main()
