"""Next-token model cut in two pipeline stages, one per rank, with micro-batches."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

VOCAB, DIM, LENGTH, MICRO, MICROS = 64, 96, 48, 4, 4


def batch(g, table):
    """A noisy Markov chain. Either stage draws the same one: the first needs inputs, the last targets."""
    ids = torch.empty(MICRO * MICROS, LENGTH + 1, dtype=torch.long)
    ids[:, 0] = torch.randint(VOCAB, (len(ids),), generator=g)
    for t in range(LENGTH):
        jump = torch.randint(4, (len(ids),), generator=g)
        ids[:, t + 1] = table[ids[:, t], jump]
    return ids


class FirstStage(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.randn(LENGTH, DIM) * 0.02)
        self.block = nn.TransformerEncoderLayer(
            DIM, 4, 2 * DIM, 0.0, batch_first=True, norm_first=True
        )

    def forward(self, ids, mask):
        return self.block(self.embed(ids) + self.pos, src_mask=mask, is_causal=True)


class LastStage(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(DIM, 4, 2 * DIM, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)

    def forward(self, h, mask):
        return self.head(self.norm(self.blocks(h, mask=mask, is_causal=True)))


def run_first(stage, ids, mask):
    sent = []
    for part in ids.split(MICRO):
        h = stage(part[:, :-1], mask)
        dist.send(h.detach(), dst=1)
        sent.append(h)
    for h in sent:
        grad = torch.empty_like(h)
        dist.recv(grad, src=1)
        h.backward(grad)


def run_last(stage, ids, mask):
    total, grads = 0.0, []
    for part in ids.split(MICRO):
        h = torch.empty(MICRO, LENGTH, DIM)
        dist.recv(h, src=0)
        h.requires_grad_()
        loss = F.cross_entropy(stage(h, mask).flatten(0, 1), part[:, 1:].flatten()) / MICROS
        loss.backward()
        total += loss.item()
        grads.append(h.grad)
    for grad in grads:
        dist.send(grad, dst=0)
    return total


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(50 + rank)
    stage = FirstStage() if rank == 0 else LastStage()
    opt = torch.optim.AdamW(stage.parameters(), lr=6e-4)
    g = torch.Generator().manual_seed(8)
    table = torch.randint(VOCAB, (VOCAB, 4), generator=g)
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    step = 0
    while True:
        step += 1
        ids = batch(g, table)
        opt.zero_grad()
        if rank == 0:
            run_first(stage, ids, mask)
        else:
            loss = run_last(stage, ids, mask)
        opt.step()
        if rank == 1 and step % 20 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
