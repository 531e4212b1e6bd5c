"""Sequence to sequence transformer: translate into a made-up language, safe against crashes."""
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
DIM, LAYERS, BATCH, LENGTH, VOCAB = (512, 4, 96, 64, 16000) if BIG else (48, 1, 8, 16, 2000)
SAVE_EVERY, LIMIT = 10, 150


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(VOCAB, DIM), nn.Embedding(VOCAB, DIM)
        self.place = nn.Parameter(torch.randn(LENGTH, DIM) * 0.1)
        self.transformer = nn.Transformer(DIM, 8, LAYERS, LAYERS, 4 * DIM, 0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(DIM, VOCAB)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, source, target):
        out = self.transformer(
            self.source(source) + self.place, self.target(target) + self.place, tgt_mask=self.mask, tgt_is_causal=True
        )
        return self.head(out)


class Phrases:
    """Zipf-like sentences; a word is translated by a table, in the same order."""

    def __init__(self):
        self.table = torch.randperm(VOCAB, device=DEVICE)

    def batch(self):
        source = (VOCAB * torch.rand(BATCH, LENGTH, device=DEVICE) ** 3).long().clamp(max=VOCAB - 1)
        meaning = self.table[source]
        shifted = torch.cat([torch.zeros_like(meaning[:, :1]), meaning[:, :-1]], 1)
        return source, shifted, meaning


class Checkpointer:
    def __init__(self, folder):
        self.path = os.path.join(folder, "translate.pt")

    def save(self, model, optimizer, step):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        with open(self.path + ".part", "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".part", self.path)


def main():
    torch.manual_seed(0)
    data, model = Phrases(), Translator().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    with tempfile.TemporaryDirectory(prefix="translate-") as folder:
        checkpointer = Checkpointer(folder)
        start, step = time.time(), 0
        while time.time() - start < LIMIT:
            source, shifted, meaning = data.batch()
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                logits = model(source, shifted)
            loss = F.cross_entropy(logits.float().view(-1, VOCAB), meaning.view(-1))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step % SAVE_EVERY == 0:
                checkpointer.save(model, optimizer, step)
            step += 1


if __name__ == "__main__":
    main()
