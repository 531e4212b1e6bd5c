"""Ticket routing classifier. Small trainer with callbacks, metrics go to the team's tracking server."""

import ctypes
import json
import signal
import subprocess
import sys
import urllib.request

import torch
import torch.nn as nn

# The tracking service (in production: http://mlops-tracker.internal). Local stand-in.
TRACKER = r"""
import http.server, sys, time
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.055)
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *a): pass
srv = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
print(srv.server_address[1], flush=True)
srv.serve_forever()
"""

BATCH, SEQ_LEN, RATE, WARMUP, LOG_EVERY, MAX_NORM, SEED = 32, 48, 1e-3, 100, 50, 1.0, 42


class ProgressCallback:
    def on_step_end(self, trainer, logs):
        if trainer.step % LOG_EVERY == 0:
            print(f"step {trainer.step} {logs}", flush=True)


class TrackerCallback:
    def __init__(self, run):
        child = subprocess.Popen(
            [sys.executable, "-c", TRACKER],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL),
        )
        self.url = f"http://127.0.0.1:{child.stdout.readline().strip()}/api/runs/{run}/log"

    def on_step_end(self, trainer, logs):
        req = urllib.request.Request(
            self.url, json.dumps(logs).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(req, timeout=10) as r:
            r.read()


class Classifier(nn.Module):
    def __init__(self, vocab=2000, dim=96, classes=12):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.zeros(64, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 192, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.cls = nn.Linear(dim, classes)

    def forward(self, input_ids, labels):
        h = self.encoder(self.emb(input_ids) + self.pos[: input_ids.size(1)])
        logits = self.cls(h.mean(1))
        return nn.functional.cross_entropy(logits, labels), logits


class Tickets:
    """Bag of topical words hidden in common words."""

    def __init__(self):
        self.g = torch.Generator().manual_seed(SEED)

    def batch(self):
        b, t = BATCH, SEQ_LEN
        y = torch.randint(0, 12, (b,), generator=self.g)
        common = torch.randint(0, 1400, (b, t), generator=self.g)
        topical = 1400 + y[:, None] * 50 + torch.randint(0, 50, (b, t), generator=self.g)
        return dict(
            input_ids=torch.where(torch.rand(b, t, generator=self.g) < 0.25, topical, common),
            labels=y,
        )


class Trainer:
    def __init__(self, model, data, callbacks):
        self.model, self.data, self.callbacks = model, data, callbacks
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda s: min(1.0, (s + 1) / WARMUP)
        )
        self.step = 0

    def training_step(self, inputs):
        self.model.train()
        loss, _ = self.model(**inputs)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return {"loss": loss.item(), "grad_norm": norm.item()}

    def train(self):
        while True:
            logs = self.training_step(self.data.batch())
            self.step += 1
            for cb in self.callbacks:
                cb.on_step_end(self, logs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    callbacks = [ProgressCallback(), TrackerCallback("tickets-v3")]
    Trainer(Classifier(), Tickets(), callbacks).train()
