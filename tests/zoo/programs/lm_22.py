import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width, depth, vocab=150, classes=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(width, classes)

    def forward(self, ids):
        return self.out(self.layers(self.embed(ids)).mean(1))


class Distiller:
    def __init__(self, teacher, student, temperature=2.0, hard=0.3):
        self.teacher = teacher.eval().requires_grad_(False)
        self.student = student.train()
        self.temperature = temperature
        self.hard = hard

    def loss(self, ids, labels):
        with torch.no_grad():
            wanted = F.log_softmax(self.teacher(ids) / self.temperature, dim=1)
        logits = self.student(ids)
        given = F.log_softmax(logits / self.temperature, dim=1)
        soft = F.kl_div(given, wanted, log_target=True, reduction="batchmean")
        return (
            self.hard * F.cross_entropy(logits, labels)
            + (1 - self.hard) * self.temperature**2 * soft
        )


def queries(generator, count=16, length=24):
    labels = torch.randint(0, 12, (count,), generator=generator)
    ids = torch.randint(0, 150, (count, length), generator=generator)
    ids[:, ::2] = labels.unsqueeze(1) * 12 + ids[:, ::2] % 12
    return ids, labels


def main():
    torch.manual_seed(91)
    generator = torch.Generator().manual_seed(91)
    distiller = Distiller(Encoder(96, 3), Encoder(32, 1))
    optimizer = torch.optim.AdamW(distiller.student.parameters(), lr=1e-3)
    for step in range(1_000_000):
        ids, labels = queries(generator)
        loss = distiller.loss(ids, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
