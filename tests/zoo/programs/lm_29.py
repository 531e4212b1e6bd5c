"""Column addition, written as text, for longer and longer numbers."""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

PLUS, EQUALS, END = 10, 11, 12
VOCAB, MAX_DIGITS = 13, 10
STAGE_STEPS = 200


def sums(digits, batch, gen):
    """Tokens `a+b=c.` least significant digit first; only the answer is scored."""
    a = torch.randint(10, (batch, digits), generator=gen)
    b = torch.randint(10, (batch, digits), generator=gen)
    out, carry = [], torch.zeros(batch, dtype=torch.long)
    for k in range(digits):
        s = a[:, k] + b[:, k] + carry
        out.append(s % 10)
        carry = s // 10
    c = torch.stack(out + [carry], 1)
    mark = lambda token: torch.full((batch, 1), token)
    text = torch.cat([a, mark(PLUS), b, mark(EQUALS), c, mark(END)], 1)
    labels = text[:, 1:].clone()
    labels[:, : 2 * digits + 1] = -100
    return text[:, :-1], labels


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(n, t, d))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class Adder(nn.Module):
    def __init__(self, dim=96, heads=4, layers=2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.place = nn.Embedding(MAX_DIGITS + 2, dim)
        self.part = nn.Embedding(3, dim)
        self.layers = nn.Sequential(*[Layer(dim, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, text):
        seps = (text == PLUS) | (text == EQUALS)
        part = seps.long().cumsum(1)
        index = torch.arange(text.shape[1]).expand_as(text)
        start = torch.where(seps, index, torch.zeros_like(index)).cummax(1).values
        place = index - start + (part == 0).long()
        return self.out(
            self.norm(self.layers(self.tok(text) + self.place(place) + self.part(part)))
        )


def main(batch=96, seed=4):
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    gen = torch.Generator().manual_seed(seed)
    model = Adder()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=STAGE_STEPS, eta_min=2e-5)
    for step in itertools.count(1):
        digits = min(2 + (step - 1) // STAGE_STEPS, MAX_DIGITS)
        text, labels = sums(digits, batch, gen)
        logits = model(text)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            scored = labels != -100
            acc = (logits.argmax(-1) == labels)[scored].float().mean()
            print(
                f"step {step} digits {digits} loss {loss.item():.4f} acc {acc.item():.3f} "
                f"norm {norm.item():.2f} lr {sched.get_last_lr()[0]:.1e}",
                flush=True,
            )
        if step >= 30000:
            break


if __name__ == "__main__":
    main()
