"""Actor and learner for a pursuit game: the actor plays, the learner trains on its episodes."""

import multiprocessing
import queue

import numpy as np
import torch
from torch import nn

MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]], dtype=np.float32) * 0.1
LENGTH = 40


class Policy(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.logits = nn.Linear(width, len(MOVES))
        self.value = nn.Linear(width, 1)

    def forward(self, observations):
        hidden = self.trunk(observations)
        return self.logits(hidden), self.value(hidden).squeeze(-1)


class Arena:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def reset(self):
        self.hunter, self.prey = self.random.uniform(-1, 1, (2, 2)).astype(np.float32)
        return np.concatenate([self.hunter, self.prey])

    def step(self, action):
        before = np.linalg.norm(self.hunter - self.prey)
        self.hunter = np.clip(self.hunter + MOVES[action], -1, 1)
        drift = self.random.normal(0, 0.02, 2).astype(np.float32)
        self.prey = np.clip(self.prey + drift, -1, 1)
        reward = before - np.linalg.norm(self.hunter - self.prey)
        return np.concatenate([self.hunter, self.prey]), 10 * reward


def play(arena, policy):
    (observations, actions, rewards), observation = ([], [], []), arena.reset()
    for _ in range(LENGTH):
        with torch.no_grad():
            logits, _ = policy(torch.from_numpy(observation))
        action = torch.distributions.Categorical(logits=logits).sample().item()
        observations.append(observation)
        actions.append(action)
        observation, reward = arena.step(action)
        rewards.append(reward)
    return np.stack(observations), np.array(actions), np.array(rewards, dtype=np.float32)


def newest(weights):
    state = None
    while True:
        try:
            state = weights.get_nowait()
        except queue.Empty:
            return state


def act(seed, episodes, weights, refresh=8):
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    arena, policy = Arena(seed), Policy()
    played = 0
    while True:
        if played % refresh == 0:
            state = newest(weights)
            if state is not None:
                policy.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
        episodes.put(play(arena, policy))
        played += 1


class Learner:
    def __init__(self, episodes, weights):
        self.episodes, self.weights = episodes, weights
        self.policy = Policy()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-3)

    def publish(self):
        self.weights.put({k: v.numpy().copy() for k, v in self.policy.state_dict().items()})

    def update(self):
        observations, actions, rewards = self.episodes.get()
        returns = np.zeros_like(rewards)
        after = 0.0
        for index in reversed(range(len(rewards))):
            returns[index] = after = rewards[index] + 0.8 * after
        logits, values = self.policy(torch.from_numpy(observations))
        returns = torch.from_numpy(returns)
        chosen = torch.distributions.Categorical(logits=logits)
        advantages = (returns - values).detach()
        loss = -(chosen.log_prob(torch.from_numpy(actions)) * advantages).mean()
        loss = loss + 0.5 * nn.functional.mse_loss(values, returns) - 0.01 * chosen.entropy().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return rewards.sum()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(4)
    fork = multiprocessing.get_context("fork")
    episodes, weights = fork.Queue(maxsize=4), fork.Queue(maxsize=1)
    fork.Process(target=act, args=(11, episodes, weights), daemon=True).start()
    learner, smooth = Learner(episodes, weights), 0.0
    for step in range(1, 1_000_000):
        smooth += 0.05 * (learner.update() - smooth)
        if step % 20 == 0:
            print(f"step {step} return {smooth:.2f}", flush=True)
        if step % (20 if step < 200 else 2) == 0:
            learner.publish()
