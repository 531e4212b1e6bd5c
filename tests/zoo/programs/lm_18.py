import torch
from torch import nn


class Tiny(nn.Module):
    def __init__(self, vocab=120, width=64, heads=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layer = nn.TransformerDecoderLayer(width, heads, 128, dropout=0.0, batch_first=True)
        self.memory = nn.Parameter(torch.randn(1, 4, width) * 0.02)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        memory = self.memory.expand(len(ids), -1, -1)
        return self.head(self.layer(self.embed(ids), memory, tgt_mask=mask))


def sequences(seed, vocab=120):
    generator = torch.Generator().manual_seed(seed)
    while True:
        start = torch.randint(0, vocab, (4, 1), generator=generator)
        stride = torch.randint(1, 7, (4, 1), generator=generator)
        yield (start + stride * torch.arange(33)) % vocab


def main(accumulate=8):
    torch.manual_seed(65)
    model = Tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.3, total_iters=20)
    running, step = 0.0, 0
    for number, rows in enumerate(sequences(65), 1):
        logits = model(rows[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        (loss / accumulate).backward()
        running += loss.item() / accumulate
        if number % accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step % 5 == 0:
                print(f"step {step} loss {running:.4f}", flush=True)
            running = 0.0


if __name__ == "__main__":
    main()
