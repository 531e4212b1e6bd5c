"""Learns what an arm does: motions come from a simulator behind a socket."""

import multiprocessing
import socket

import numpy as np
import torch
from torch import nn

JOINTS = 6
STATE = 4 * JOINTS  # bytes of one state, or of one command


def read_exactly(connection, count):
    data = b""
    while len(data) < count:
        data += connection.recv(count - len(data))
    return data


def simulate(connection, ticks=20_000):
    """The arm: damped joints that pull at their neighbours."""
    angles, speeds = np.zeros((2, JOINTS), dtype=np.float32)
    for tick in range(ticks + 1):
        command = np.frombuffer(read_exactly(connection, STATE), dtype=np.float32)
        if tick == ticks:
            break
        pull = np.roll(angles, 1) - angles
        speeds = 0.9 * speeds + 0.1 * (command + np.sin(pull) - 0.3 * angles)
        angles = angles + 0.1 * speeds
        connection.sendall(angles.astype(np.float32).tobytes())
    connection.close()


class Arm:
    def __init__(self):
        mine, its = socket.socketpair()
        fork = multiprocessing.get_context("fork")
        self.process = fork.Process(target=simulate, args=(its,), daemon=True)
        self.process.start()
        its.close()
        self.connection = mine

    def move(self, command):
        self.connection.sendall(command.tobytes())
        return np.frombuffer(read_exactly(self.connection, STATE), dtype=np.float32)


class Motions:
    def __init__(self, arm, seed):
        self.arm = arm
        self.random = np.random.default_rng(seed)
        self.past = [np.zeros(JOINTS, dtype=np.float32)] * 2

    def batch(self, count=64):
        inputs, targets = [], []
        for _ in range(count):
            command = self.random.normal(0, 1, JOINTS).astype(np.float32)
            state = self.arm.move(command)
            inputs.append(np.concatenate([*self.past, command]))
            targets.append(10 * (state - self.past[1]))
            self.past = [self.past[1], state]
        return torch.from_numpy(np.stack(inputs)), torch.from_numpy(np.stack(targets))


class Forward(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3 * JOINTS, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, JOINTS),
        )

    def forward(self, inputs):
        return self.net(inputs)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(6)
    motions = Motions(Arm(), seed=6)
    model = Forward()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, 1_000_000):
        inputs, targets = motions.batch()
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
