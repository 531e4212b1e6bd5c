"""Tool wear of a milling machine: a surrogate learns from a simulator that answers over a socket."""

import json
import socket
import socketserver
import threading

import torch
from torch import nn

FEATURES = 24


class Simulator(socketserver.StreamRequestHandler):
    """One JSON list of settings a line in, the wear of each out."""

    def handle(self):
        for line in self.rfile:
            settings = torch.tensor(json.loads(line)).view(-1, FEATURES)
            wear = torch.sin(settings[:, :6]).sum(1) + 0.2 * settings[:, 6:12].pow(2).sum(1)
            self.wfile.write(json.dumps(wear.tolist()).encode() + b"\n")


class Client:
    def __init__(self, address):
        self.socket = socket.create_connection(address)
        self.stream = self.socket.makefile("rwb")

    def ask(self, settings):
        self.stream.write(json.dumps(settings.tolist()).encode() + b"\n")
        self.stream.flush()
        return torch.tensor(json.loads(self.stream.readline()))

    def ask_pairs(self, settings, others):
        for one, other in zip(settings, others):
            pair = [[round(value, 3) for value in side.tolist()] for side in (one, other)]
            self.stream.write(json.dumps(pair).encode() + b"\n")
        answers = [json.loads(self.stream.readline()) for _ in settings]
        return torch.tensor(answers)


class Surrogate(nn.Module):
    def __init__(self, width=320):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(FEATURES, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.wear = nn.Linear(width, 1)

    def forward(self, settings):
        return self.wear(self.inner(settings)).squeeze(-1)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(17)
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Simulator)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="simulator", daemon=True).start()
    client = Client(server.server_address)
    model = Surrogate()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    settings = torch.randn(512, FEATURES)
    wear = client.ask(settings)
    for step in range(1, 200_000):
        pick = torch.randint(0, len(settings), (256,))
        loss = nn.functional.huber_loss(model(settings[pick]), wear[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} points {len(settings)} loss {loss.item():.4f}", flush=True)
        if step % 30 == 0 and step % 240:
            fresh = torch.randn(64, FEATURES)
            settings = torch.cat([settings, fresh])[-8192:]
            wear = torch.cat([wear, client.ask(fresh)])[-8192:]
        if step % 240 == 0:
            base = settings[torch.randperm(len(settings))[:16]]
            moved = base + 0.05 * torch.randn_like(base)
            change = client.ask_pairs(base, moved).diff(dim=1).abs().mean()
            print(f"step {step} sensitivity {change.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
