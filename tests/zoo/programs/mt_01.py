"""Sequence-to-sequence transformer (reverse-copy translation), two data-parallel processes."""

import os
import signal
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

PAD, BOS, VOCAB, DIM, BATCH = 0, 1, 200, 96, 16
MAX_SECONDS = 600


def make_pairs(n=4000):
    """Sentence pairs, shortest first so that a batch needs little padding."""
    g = torch.Generator().manual_seed(5)
    lengths = (
        4 + 8 * torch.randn(n, generator=g).abs() + 60 * torch.rand(n, generator=g) ** 3
    ).long()
    pairs = []
    for length in lengths.tolist():
        src = torch.randint(2, VOCAB, (length,), generator=g)
        pairs.append((src, (src.flip(0) * 7) % (VOCAB - 2) + 2))
    return sorted(pairs, key=lambda p: len(p[0]))


def shard(pairs, rank, world):
    per_rank = len(pairs) // world
    return pairs[rank * per_rank : (rank + 1) * per_rank]


def batches(pairs, g):
    chunks = [pairs[i : i + BATCH] for i in range(0, len(pairs), BATCH)]
    while True:
        for k in torch.randperm(len(chunks), generator=g).tolist():
            src, tgt = zip(*chunks[k])
            tgt_in = [torch.cat([torch.tensor([BOS]), t[:-1]]) for t in tgt]
            yield [
                nn.utils.rnn.pad_sequence(z, batch_first=True, padding_value=PAD)
                for z in (src, tgt_in, tgt)
            ]


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.pos = nn.Embedding(128, DIM)
        self.core = nn.Transformer(DIM, 4, 2, 2, 2 * DIM, dropout=0.1, batch_first=True)
        self.out = nn.Linear(DIM, VOCAB)

    def put(self, ids):
        return self.embed(ids) + self.pos(torch.arange(ids.shape[1]).clamp(max=127))

    def forward(self, src, tgt):
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1]).isinf()
        h = self.core(
            self.put(src),
            self.put(tgt),
            tgt_mask=causal,
            src_key_padding_mask=src == PAD,
            tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=src == PAD,
        )
        return self.out(h)


def train(rank, world, port):
    signal.alarm(MAX_SECONDS + 20)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DDP(Translator())
    opt = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.98))
    data = batches(shard(make_pairs(), rank, world), torch.Generator().manual_seed(rank))
    started, tokens = time.time(), 0
    for step, (src, tgt_in, tgt) in enumerate(data, 1):
        loss = F.cross_entropy(model(src, tgt_in).flatten(0, 1), tgt.flatten(), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        tokens += int((tgt != PAD).sum())
        if step % 50 == 0:
            stop = torch.tensor(float(time.time() - started > MAX_SECONDS))
            dist.broadcast(stop, 0)
            if rank == 0:
                print(
                    f"step {step} loss {loss.item():.3f} {step / (time.time() - started):.1f} steps/s",
                    flush=True,
                )
            if stop:
                break
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(train, args=(2, free_port()), nprocs=2)
