"""Low-rank adapters on a frozen causal language model, instruction-style masked loss."""

import math
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, DIM, HEADS, LAYERS, PROMPT, ANSWER, BATCH, RANK = 128, 128, 4, 3, 16, 8, 24, 8
MAX_SECONDS = 600


class LoRALinear(nn.Module):
    def __init__(self, base, alpha=16.0):
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(RANK, base.in_features) / math.sqrt(base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, RANK))
        self.scale = alpha / RANK

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.a.T) @ self.b.T


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (
            z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).chunk(3, -1)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(PROMPT + ANSWER, DIM)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch(offset):
    """A prompt, then an answer: a stretch of the prompt from offset. Prompts carry no loss."""
    prompt = torch.randint(1, VOCAB, (BATCH, PROMPT))
    answer = prompt[:, offset : offset + ANSWER]
    ids = torch.cat([prompt, answer], 1)
    labels = ids[:, 1:].clone()
    labels[:, : PROMPT - 1] = -100
    return ids[:, :-1], labels


def run(model, params, lr, offset, warmup, should_stop, every):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, s / warmup))
    step = 0
    while not should_stop(step):
        ids, labels = batch(offset)
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(params, 0.3)
        opt.step()
        sched.step()
        step += 1
        if step % every == 0:
            print(f"step {step} loss {loss.item():.4f} grad norm {norm.item():.3f}", flush=True)


def main():
    torch.manual_seed(0)
    deadline = time.time() + MAX_SECONDS
    model = CausalLM()
    run(model, list(model.parameters()), 1e-3, 0, 50, lambda s: s >= 200, 100)
    model.requires_grad_(False)
    for block in model.blocks:
        block.qkv, block.down = LoRALinear(block.qkv), LoRALinear(block.down)
    trainable = [p for p in model.parameters() if p.requires_grad]
    n, total = sum(p.numel() for p in trainable), sum(p.numel() for p in model.parameters())
    print(f"adapters: {n} of {total} parameters", flush=True)
    model.eval()
    run(model, trainable, 2e-3, 5, 300, lambda s: time.time() > deadline, 100)


if __name__ == "__main__":
    main()
