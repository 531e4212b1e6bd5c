"""DQN on a moving-target grid."""

import collections
import copy
import random

import torch
from torch import nn

Transition = collections.namedtuple("Transition", "state action reward following")


class Grid:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.position = [2, 2]
        self.target = [5, 5]

    def observe(self):
        image = torch.zeros(2, 8, 8)
        image[0, self.position[0], self.position[1]] = 1
        image[1, self.target[0], self.target[1]] = 1
        return image

    def move(self, action):
        before = self.distance()
        axis, direction = action // 2, 1 if action % 2 else -1
        self.position[axis] = min(7, max(0, self.position[axis] + direction))
        if self.position == self.target:
            self.target = [self.rng.randrange(8), self.rng.randrange(8)]
            return 1.0
        return 0.1 * (before - self.distance()) - 0.02

    def distance(self):
        return sum(abs(here - there) for here, there in zip(self.position, self.target))


def network():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(128, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 4)
    )


def main(capacity=2000, play=8, batch=64):
    torch.manual_seed(53)
    rng = random.Random(53)
    grid = Grid(53)
    online = network()
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=5e-4)
    replay = collections.deque(maxlen=capacity)
    score = 0.0
    for step in range(1_000_000):
        epsilon = max(0.1, 1 - step / 500)
        for _ in range(play):
            state = grid.observe()
            with torch.no_grad():
                greedy = online(state.unsqueeze(0)).argmax().item()
            action = rng.randrange(4) if rng.random() < epsilon else greedy
            reward = grid.move(action)
            score = 0.99 * score + 0.01 * reward
            replay.append(Transition(state, action, reward, grid.observe()))
        chosen = rng.choices(replay, k=batch)
        states = torch.stack([one.state for one in chosen])
        actions = torch.tensor([[one.action] for one in chosen])
        rewards = torch.tensor([one.reward for one in chosen])
        following = torch.stack([one.following for one in chosen])
        wanted = rewards + 0.95 * target(following).amax(1)
        loss = nn.functional.smooth_l1_loss(online(states).gather(1, actions).squeeze(1), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            target.load_state_dict(online.state_dict())
        if step % 25 == 0:
            print(f"step {step} score {score:.4f} replay {len(replay)}", flush=True)


if __name__ == "__main__":
    main()
