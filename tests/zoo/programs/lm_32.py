"""Character model with a mixture of experts in each block."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
torch.set_num_threads(1)

WORDS = (
    "the cat sat on a mat and saw two black dogs run over an old bridge while it was raining "
    "in town so they all went home to eat warm soup with bread near their fire"
).split()


def make_text(n, seed):
    g = torch.Generator().manual_seed(seed)
    follow = torch.rand(len(WORDS), len(WORDS), generator=g) ** 8
    word, out = 0, []
    for _ in range(n):
        word = int(torch.multinomial(follow[word], 1, generator=g))
        out.append(WORDS[word])
    return " ".join(out)


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MixtureOfExperts(nn.Module):
    def __init__(self, dim, count):
        super().__init__()
        self.gate = nn.Linear(dim, count)
        self.experts = [Expert(dim) for _ in range(count)]

    def forward(self, x):
        weight = self.gate(x).softmax(-1)
        outs = torch.stack([expert(x) for expert in self.experts], -2)
        return (weight.unsqueeze(-1) * outs).sum(-2)


class Block(nn.Module):
    def __init__(self, dim, heads, experts):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.moe = MixtureOfExperts(dim, experts)
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.moe(self.norm2(x))


class CharModel(nn.Module):
    def __init__(self, vocab, dim=64, depth=2, length=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(length, dim)
        self.blocks = nn.Sequential(*[Block(dim, 4, experts=4) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.embed(ids) + self.pos.weight[: ids.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def main(length=64, batch=12):
    text = make_text(8000, seed=4)
    chars = sorted(set(text))
    ids = torch.tensor([chars.index(c) for c in text])
    model = CharModel(len(chars), length=length)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    g = torch.Generator().manual_seed(6)
    step = 0
    while True:
        step += 1
        at = torch.randint(len(ids) - length - 1, (batch, 1), generator=g) + torch.arange(
            length + 1
        )
        window = ids[at]
        logits = model(window[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
