"""Image and caption embeddings trained with a contrastive loss, mixed precision."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
BATCH, DIM, LAYERS, PATCHES = (768, 512, 3, 32) if BIG else (64, 64, 1, 4)
TOPICS, BINS, OUT, TAU, LIMIT = 24, 16, 128, 0.07, 150


def trunk():
    layer = nn.TransformerEncoderLayer(DIM, 8, 4 * DIM, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)


class ImageEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.trunk, self.out = nn.Linear(48, DIM), trunk(), nn.Linear(DIM, OUT)

    def forward(self, patches):
        return self.out(self.trunk(self.patch(patches)).mean(1))


class TextEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.trunk, self.out = nn.Embedding(TOPICS * BINS, DIM), trunk(), nn.Linear(DIM, OUT)

    def forward(self, ids):
        return self.out(self.trunk(self.words(ids)).mean(1))


class Pairs:
    """Picture and caption are two views of the same hidden topics."""

    def __init__(self):
        self.paint = torch.randn(PATCHES, TOPICS, 48, device=DEVICE) / TOPICS**0.5
        self.shift = torch.arange(TOPICS, device=DEVICE) * BINS

    def batch(self):
        topics = torch.rand(BATCH, TOPICS, device=DEVICE)
        patches = torch.einsum("bt,ptc->bpc", 3.4 * (topics - 0.5), self.paint)
        words = (topics * BINS).long().clamp(0, BINS - 1) + self.shift
        return patches + 0.1 * torch.randn_like(patches), words


def info_nce(image, text):
    image, text = F.normalize(image, dim=1), F.normalize(text, dim=1)
    weight = torch.exp(image @ text.t() / TAU)
    share = weight.diagonal() / weight.sum(1)
    return -torch.log(share).mean()


def main():
    torch.manual_seed(0)
    data = Pairs()
    images, texts = ImageEncoder().to(DEVICE), TextEncoder().to(DEVICE)
    parameters = [*images.parameters(), *texts.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-4 if BIG else 1e-3, weight_decay=0.05)
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        patches, words = data.batch()
        with torch.autocast(DEVICE, dtype=torch.float16):
            image, text = images(patches), texts(words)
        loss = info_nce(image, text)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
