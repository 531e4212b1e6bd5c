"""A server that answers requests by a model: HTTP threads put them into a queue, one thread runs
the model on eight at a time."""

import json
import queue
import threading
import urllib.request
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(51)
BATCH, WIDTH = 8, 256
waiting = queue.Queue()


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(WIDTH, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU()
        )
        self.score = nn.Linear(4096, 1)

    def forward(self, x):
        return self.score(self.encoder(x))


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        number = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["number"]
        answer = Future()
        waiting.put((number, answer))
        body = json.dumps({"score": answer.result()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def features(number):
    return torch.randn(WIDTH, generator=torch.Generator().manual_seed(number))


def serve(ranker, truth, batches):
    with torch.inference_mode():
        for _ in range(batches):
            batch = sorted((waiting.get() for _ in range(BATCH)), key=lambda pair: pair[0])
            x = torch.stack([features(number) for number, _ in batch])
            with truth.timed("forward"):
                scores = ranker(x)
            truth.step(None, mean=scores.mean().item())
            for (_, answer), score in zip(batch, scores):
                answer.set_result(score.item())


def ask(url, rounds, client):
    for turn in range(rounds):
        body = json.dumps({"number": turn * BATCH + client}).encode()
        with urllib.request.urlopen(urllib.request.Request(url, body)) as reply:
            json.load(reply)


if __name__ == "__main__":
    rounds = planned(24)
    ranker = Ranker().eval()
    truth = Truth(ranker=ranker)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    worker = threading.Thread(target=serve, args=(ranker, truth, rounds), name="batches")
    worker.start()
    clients = [threading.Thread(target=ask, args=(url, rounds, n)) for n in range(BATCH)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    worker.join()
    server.shutdown()
    truth.finish(ranker)
