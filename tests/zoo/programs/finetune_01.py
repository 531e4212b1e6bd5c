"""Fine-tune a pre-trained sentence encoder on a small sentiment task (frozen body, new head)."""

import time

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, DIM, LENGTH, BATCH = 500, 96, 32, 32
MAX_SECONDS = 600


class SentenceEncoder(nn.Module):
    def __init__(self, n_out):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(0.02 * torch.randn(LENGTH, DIM))
        layer = nn.TransformerEncoderLayer(DIM, 4, 2 * DIM, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, n_out)

    def features(self, ids):
        return self.body(self.embed(ids) + self.pos)

    def forward(self, ids):
        return self.head(self.features(ids).mean(1))

    def reset_classifier(self, n_out):
        self.head = nn.Linear(DIM, n_out)


def topics(n, g):
    """The pre-training task: which of 20 word groups dominates."""
    y = torch.randint(20, (n,), generator=g)
    own = y[:, None] * 25 + torch.randint(25, (n, LENGTH), generator=g)
    noise = torch.randint(VOCAB, (n, LENGTH), generator=g)
    return torch.where(torch.rand(n, LENGTH, generator=g) < 0.4, own, noise), y


def reviews(n, g):
    """The downstream task: five ratings, each leaning on four word groups."""
    ids, group = topics(n, g)
    return ids, group // 4


def load_pretrained():
    g = torch.Generator().manual_seed(0)
    model = SentenceEncoder(20)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(120):
        ids, y = topics(BATCH, g)
        loss = F.cross_entropy(model(ids), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"pre-trained, loss {loss.item():.3f}", flush=True)
    return model


def build_optimizer(model, lr, weight_decay=0.01):
    for name, p in model.named_parameters():
        p.requires_grad_(name.startswith("head."))
    decay = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    plain = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    return torch.optim.AdamW(
        [{"params": decay, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}],
        lr=lr,
    )


def main():
    torch.manual_seed(0)
    model = load_pretrained()
    opt = build_optimizer(model, lr=2e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 50))
    model.reset_classifier(5)
    g = torch.Generator().manual_seed(1)
    deadline, step, right, seen = time.time() + MAX_SECONDS, 0, 0, 0
    model.train()
    while time.time() < deadline:
        ids, y = reviews(BATCH, g)
        logits = model(ids)
        loss = F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        right += int((logits.argmax(1) == y).sum())
        seen += BATCH
        step += 1
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f} acc {right / seen:.3f}", flush=True)
            right = seen = 0


if __name__ == "__main__":
    main()
