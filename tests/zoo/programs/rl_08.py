# DQN with one acting thread and one learning thread (the main one).
import threading, time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(11)
OBS, ACTIONS, ENVS, GAMMA, NSTEP = 6, 4, 16, 0.97, 3


class HillEnv:  # a batch of point masses that have to reach the origin
    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.normal(size=(n, OBS)).astype(np.float32)
        self.push = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], dtype=np.float32)

    def step(self, action):
        self.state[:, 2:4] = 0.9 * self.state[:, 2:4] + 0.1 * self.push[action]
        self.state[:, :2] = np.clip(self.state[:, :2] + self.state[:, 2:4], -2, 2)
        dist = np.linalg.norm(self.state[:, :2], axis=1)
        done = (dist < 0.15) | (self.rng.random(len(dist)) < 0.02)
        reward = -0.1 * dist + 1.0 * (dist < 0.15)
        nxt = self.state.copy()
        self.state[done] = self.rng.normal(size=(int(done.sum()), OBS))
        return reward, nxt, done


class Policy:  # the network that acts; refreshed from the learner now and then
    def __init__(self):
        self.lock, self.net = threading.Lock(), make_net()

    def q(self, obs):
        with self.lock, torch.no_grad():
            return self.net(torch.as_tensor(obs))

    def refresh(self, learner, replay):
        with self.lock:
            self.net.load_state_dict(learner.state_dict())
            replay.age_priorities(0.9)


class Replay:
    def __init__(self, size, policy):
        self.lock, self.policy = threading.Lock(), policy
        self.size, self.head, self.count = size, 0, 0
        self.obs, self.nxt = np.zeros((size, OBS), np.float32), np.zeros((size, OBS), np.float32)
        self.act, self.rew = np.zeros(size, np.int64), np.zeros(size, np.float32)
        self.done, self.prio = np.zeros(size, np.float32), np.zeros(size, np.float64)

    def extend(self, rollout):
        with self.lock:
            where = []
            for t in range(len(rollout) - NSTEP):
                for e in range(ENVS):
                    ret = 0.0
                    for k in range(NSTEP):
                        ret += GAMMA**k * float(rollout[t + k][2][e])
                        if end := bool(rollout[t + k][4][e]):
                            break
                    i = self.head = (self.head + 1) % self.size
                    self.obs[i], self.act[i] = rollout[t][0][e], rollout[t][1][e]
                    self.rew[i], self.nxt[i], self.done[i] = ret, rollout[t + k][3][e], end
                    where.append(i)
            value = self.policy.q(self.obs[where]).max(1).values.numpy()
            self.prio[where] = np.abs(value - self.rew[where]) + 0.1
            self.count = min(self.size, self.count + len(where))

    def sample(self, n, rng):
        with self.lock:
            p = self.prio[: self.count]
            i = rng.choice(self.count, size=n, p=p / p.sum())
            columns = (self.obs, self.act, self.rew, self.nxt, self.done)
            return [torch.as_tensor(column[i]) for column in columns]

    def age_priorities(self, factor):
        with self.lock:
            self.prio *= factor


def make_net():
    return nn.Sequential(
        nn.Linear(OBS, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, ACTIONS)
    )


def act_forever(policy, replay):
    env, rng = HillEnv(ENVS, 5), np.random.default_rng(6)
    while True:
        rollout = []
        for _ in range(24):
            obs, action = env.state.copy(), policy.q(env.state).argmax(1).numpy()
            action = np.where(rng.random(ENVS) < 0.2, rng.integers(0, ACTIONS, ENVS), action)
            rollout.append((obs, action, *env.step(action)))
        replay.extend(rollout)


policy = Policy()
replay = Replay(50_000, policy)
online, target = make_net(), make_net()
target.load_state_dict(online.state_dict())
opt = torch.optim.Adam(online.parameters(), lr=3e-4)
threading.Thread(target=act_forever, args=(policy, replay), daemon=True, name="actor").start()
rng = np.random.default_rng(7)
while replay.count < 4000:
    time.sleep(0.05)
for step in range(1, 1_000_000):
    obs, act, rew, nxt, done = replay.sample(256, rng)
    with torch.no_grad():
        goal = rew + GAMMA**NSTEP * (1 - done) * target(nxt).max(1).values
    loss = nn.functional.smooth_l1_loss(online(obs).gather(1, act[:, None]).squeeze(1), goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        target.load_state_dict(online.state_dict())
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f} replay {replay.count}", flush=True)
        policy.refresh(online, replay)
