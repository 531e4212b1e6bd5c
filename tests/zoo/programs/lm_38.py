"""Small causal language model with warm restarts, periodic evaluation and checkpoints."""

import gc
import os
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, DIM, LAYERS, HEADS, CONTEXT, BATCH = 300, 128, 2, 4, 48, 16
EVAL_EVERY, SAVE_EVERY, GC_EVERY = 250, 400, 500
MAX_SECONDS = 600


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(CONTEXT, DIM)
        layer = nn.TransformerEncoderLayer(
            DIM, HEADS, 4 * DIM, dropout=0.1, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(DIM)
        self.register_buffer(
            "mask", torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1), persistent=False
        )

    def forward(self, ids):
        t = ids.shape[1]
        x = self.tok(ids) + self.pos(torch.arange(t))
        return self.norm(self.body(x, mask=self.mask[:t, :t])) @ self.tok.weight.T / DIM**0.5


class Text:
    def __init__(self, n=200_000, seed=0):
        g = torch.Generator().manual_seed(seed)
        words = torch.randint(VOCAB, (500, 4), generator=g)
        rank = torch.multinomial(
            1 / torch.arange(1, 501).float(), n // 4, replacement=True, generator=g
        )
        self.ids = words[rank].flatten()
        self.train, self.valid = self.ids[:-8000], self.ids[-8000:]

    def batch(self, part):
        start = torch.randint(len(part) - CONTEXT - 1, (BATCH,))
        window = part[start[:, None] + torch.arange(CONTEXT + 1)]
        return window[:, :-1], window[:, 1:]


def loss_of(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def evaluate(model, text, n=60):
    model.eval()
    value = torch.stack([loss_of(model, *text.batch(text.valid)) for _ in range(n)]).mean().item()
    model.train()
    return value


def save(path, model, opt, step):
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, path + ".tmp")
    with open(path + ".tmp", "rb") as f:
        os.fsync(f.fileno())
    os.replace(path + ".tmp", path)


def main():
    torch.manual_seed(0)
    gc.disable()
    text, model = Text(), CausalLM()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    warm = torch.optim.lr_scheduler.LinearLR(opt, 0.01, 1.0, 100)
    cycles = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 600, eta_min=1e-5)
    sched = torch.optim.lr_scheduler.SequentialLR(opt, [warm, cycles], [100])
    path = os.path.join(tempfile.mkdtemp(dir="."), "last.pt")
    deadline, step = time.time() + MAX_SECONDS, 0
    while time.time() < deadline:
        loss = loss_of(model, *text.batch(text.train))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        sched.step()
        step += 1
        if step % EVAL_EVERY == 0:
            print(
                f"step {step} loss {loss.item():.3f} val {evaluate(model, text):.3f} "
                f"lr {sched.get_last_lr()[0]:.1e}",
                flush=True,
            )
        if step % SAVE_EVERY == 0:
            save(path, model, opt, step)
        if step % GC_EVERY == 0:
            gc.collect()


if __name__ == "__main__":
    main()
