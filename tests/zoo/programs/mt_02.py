"""Subword tagger-translator with a GRU encoder and attention, two processes, gradient accumulation."""

import contextlib
import os
import signal
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

PAD, VOCAB, DIM, BATCH, ACCUM = 0, 150, 64, 8, 2
EVAL_EVERY = 60
MAX_SECONDS = 600


def make_batch(g, n=BATCH):
    length = int(torch.randint(10, 40, (1,), generator=g))
    lengths = torch.randint(length // 2, length + 1, (n,), generator=g)
    src = torch.randint(1, VOCAB, (n, length), generator=g)
    src = src.masked_fill(torch.arange(length) >= lengths[:, None], PAD)
    prev = F.pad(src, (1, 0))[:, :-1]
    tgt = ((src * 3 + 7 * (prev % 2)) % (VOCAB - 1) + 1).masked_fill(src == PAD, PAD)
    return src, tgt


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.rnn = nn.GRU(DIM, DIM, batch_first=True, bidirectional=True)
        self.attn = nn.MultiheadAttention(2 * DIM, 4, batch_first=True)
        self.norm = nn.LayerNorm(2 * DIM)
        self.domain_adapter = nn.Linear(2 * DIM, 2 * DIM)
        self.out = nn.Linear(2 * DIM, VOCAB)

    def forward(self, src, other_domain=False):
        h, _ = self.rnn(self.embed(src))
        a, _ = self.attn(h, h, h, key_padding_mask=src == PAD, need_weights=False)
        h = self.norm(h + a)
        if other_domain:
            h = h + self.domain_adapter(h)
        return self.out(h)


def loss_of(model, src, tgt, **kw):
    return F.cross_entropy(model(src, **kw).flatten(0, 1), tgt.flatten(), ignore_index=PAD)


@torch.no_grad()
def validate(model, batches):
    model.eval()
    value = torch.stack([loss_of(model, *b) for b in batches]).mean().item()
    model.train()
    return value


def train(rank, world, port):
    signal.alarm(MAX_SECONDS + 20)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(7 + rank)
    model = DDP(Net(), find_unused_parameters=True)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 100))
    g = torch.Generator().manual_seed(100 + rank)
    held_out = [make_batch(torch.Generator().manual_seed(k), 32) for k in range(20)]
    folder = tempfile.mkdtemp(dir=".") if rank == 0 else None
    started, step = time.time(), 0
    while True:
        opt.zero_grad()
        total = 0.0
        for micro in range(ACCUM):
            src, tgt = make_batch(g)
            with contextlib.nullcontext() if micro == ACCUM - 1 else model.no_sync():
                loss = loss_of(model, src, tgt) / ACCUM
                loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        sched.step()
        step += 1
        if step % EVAL_EVERY == 0:
            if rank == 0:
                val = validate(model.module, held_out)
                torch.save(
                    {"model": model.module.state_dict(), "opt": opt.state_dict(), "step": step},
                    os.path.join(folder, "last.pt"),
                )
                print(f"step {step} loss {total:.3f} val {val:.3f}", flush=True)
            dist.barrier()
            stop = torch.tensor(float(time.time() - started > MAX_SECONDS))
            dist.broadcast(stop, 0)
            if stop:
                break
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(train, args=(2, free_port()), nprocs=2)
