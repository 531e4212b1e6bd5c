"""Masked-token pre-training with a curriculum on length and warm restarts of the learning rate."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(10)
torch.set_num_threads(1)

VOCAB, MASK, DIM = 96, 95, 64
STAGES = [(0, 16), (150, 32), (300, 48), (500, 64)]


def length_at(step):
    return [n for since, n in STAGES if step >= since][-1]


class Language:
    """Phrases from a fixed list, glued together with some typing errors."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.phrases = torch.randint(VOCAB - 1, (60, 8), generator=self.g)

    def sample(self, batch, length):
        n = length // 8
        ids = self.phrases[torch.randint(60, (batch, n), generator=self.g)].flatten(1)
        typo = torch.rand(ids.shape, generator=self.g) < 0.03
        return torch.where(typo, torch.randint(VOCAB - 1, ids.shape, generator=self.g), ids)

    def masked(self, batch, length):
        ids = self.sample(batch, length)
        hide = torch.rand(ids.shape, generator=self.g) < 0.15
        hide[:, 0] = True
        labels = torch.where(hide, ids, -100)
        return ids.masked_fill(hide, MASK), labels


class Encoder(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(128, DIM)
        layer = nn.TransformerEncoderLayer(
            DIM, 4, 160, 0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(
            layer, layers, nn.LayerNorm(DIM), enable_nested_tensor=False
        )
        self.bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, ids):
        h = self.body(self.embed(ids) + self.pos.weight[: ids.shape[1]])
        return h @ self.embed.weight.T / DIM**0.5 + self.bias


def training(model, data, opt, sched):
    step = 0
    while True:
        ids, labels = data.masked(16, length_at(step))
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        opt.step()
        sched.step()
        step += 1
        yield step, loss.item(), norm.item(), ids.shape[1]


def main():
    model = Encoder()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=250, eta_min=0.0)
    for step, loss, norm, length in training(model, Language(3), opt, sched):
        if step % 25 == 0:
            print(
                f"step {step} loss {loss:.4f} norm {norm:.2f} length {length} lr {sched.get_last_lr()[0]:.5f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
