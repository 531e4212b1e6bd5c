"""DQN with one actor thread and one learner on a pole-balancing task."""

import collections
import math
import queue
import random
import threading
import time

import torch
from torch import nn
from torch.nn import functional as F

GAMMA, BATCH, CHUNK, SYNC_EVERY = 0.99, 256, 64, 60


class Pole:
    def reset(self):
        self.s = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.t = 0
        return list(self.s)

    def step(self, a):
        x, v, th, w = self.s
        force = 10.0 if a else -10.0
        tmp = (force + 0.05 * w * w * math.sin(th)) / 1.1
        acc = (9.8 * math.sin(th) - math.cos(th) * tmp) / (
            0.5 * (4 / 3 - 0.1 * math.cos(th) ** 2 / 1.1)
        )
        xacc = tmp - 0.05 * acc * math.cos(th) / 1.1
        self.s = [x + 0.02 * v, v + 0.02 * xacc, th + 0.02 * w, w + 0.02 * acc]
        self.t += 1
        done = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.21
        return list(self.s), 1.0, done, self.t >= 300


def q_net(width=256):
    return nn.Sequential(
        nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
    )


class Actor(threading.Thread):
    def __init__(self, rollouts, params, ack):
        super().__init__(daemon=True, name="actor")
        self.rollouts, self.params, self.ack = rollouts, params, ack
        self.net = q_net()
        self.returns = collections.deque(maxlen=50)
        self.steps = 0

    def run(self):
        env, total = Pole(), 0.0
        s = env.reset()
        while True:
            if not self.params.empty():
                self.net.load_state_dict(self.params.get())
                self.ack.set()
            chunk = []
            eps = max(0.05, 1.0 - self.steps / 20000)
            for _ in range(CHUNK):
                if random.random() < eps:
                    a = random.randrange(2)
                else:
                    with torch.no_grad():
                        a = int(self.net(torch.tensor(s)).argmax())
                s2, r, done, cut = env.step(a)
                chunk.append((s, a, r, s2, float(done)))
                total += r
                s = s2
                if done or cut:
                    self.returns.append(total)
                    s, total = env.reset(), 0.0
            self.steps += CHUNK
            time.sleep(0.05)  # simulator frame time
            self.rollouts.put(chunk)


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rollouts, params, ack = queue.Queue(maxsize=8), queue.Queue(maxsize=1), threading.Event()
    actor = Actor(rollouts, params, ack)
    online, target = q_net(), q_net()
    target.load_state_dict(online.state_dict())
    opt = torch.optim.Adam(online.parameters(), lr=5e-4)
    replay = collections.deque(maxlen=100_000)
    actor.start()
    for it in range(10_000_000):
        replay.extend(rollouts.get())
        n_updates = 1 + min(len(replay) // 1500, 30)
        for _ in range(n_updates):
            batch = random.choices(replay, k=BATCH)
            s, a, r, s2, d = (torch.tensor(c) for c in zip(*batch))
            with torch.no_grad():
                best = online(s2).argmax(1, keepdim=True)
                y = r + GAMMA * (1 - d) * target(s2).gather(1, best).squeeze(1)
            q = online(s).gather(1, a[:, None]).squeeze(1)
            loss = F.smooth_l1_loss(q, y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(online.parameters(), 10.0)
            opt.step()
            with torch.no_grad():
                for p, o in zip(target.parameters(), online.parameters()):
                    p.lerp_(o, 0.005)
        if it % SYNC_EVERY == SYNC_EVERY - 1:
            ack.clear()
            params.put({k: v.clone() for k, v in online.state_dict().items()})
            ack.wait()
            ret = sum(actor.returns) / max(1, len(actor.returns))
            print(
                f"step {it} loss {loss.item():.4f} return {ret:.1f} replay {len(replay)} "
                f"updates {n_updates}",
                flush=True,
            )


if __name__ == "__main__":
    main()
