"""Speaker recognition on podcast clips; a thread prepares batches ahead."""
import os
import queue
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
FRAMES, BATCH, DIM = (300, 128, 512) if BIG else (40, 8, 48)
MELS, SPEAKERS, RESHUFFLE_S, LIMIT = 80, 60, 14, 150


class SpeakerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv1d(MELS, DIM, 5, padding=2)
        self.convs = nn.ModuleList(nn.Conv1d(DIM, DIM, 3, padding=2**i, dilation=2**i) for i in range(5))
        self.norms = nn.ModuleList(nn.BatchNorm1d(DIM) for _ in range(5))
        self.out = nn.Linear(2 * DIM, SPEAKERS)

    def forward(self, x):
        x = self.inp(x)
        for conv, norm in zip(self.convs, self.norms):
            x = x + F.relu(norm(conv(x)))
        return self.out(torch.cat([x.mean(2), x.std(2)], 1))


class ClipLibrary:
    """Clips in host memory, served by a thread into a short queue."""

    def __init__(self, clips=2048 if BIG else 128):
        self.voice = torch.randn(SPEAKERS, MELS, 1)
        self.speaker = torch.randint(0, SPEAKERS, (clips,))
        self.clips = 0.4 * self.voice[self.speaker] + torch.randn(clips, MELS, FRAMES)
        self.order, self.at = torch.randperm(clips), 0
        self.lock = threading.Lock()
        self.ready = queue.Queue(maxsize=4)
        threading.Thread(target=self.serve, name="clip-reader", daemon=True).start()

    def serve(self):
        while True:
            with self.lock:
                if self.at + BATCH > len(self.order):
                    self.at = 0
                pick = self.order[self.at : self.at + BATCH]
                self.at += BATCH
                batch = self.clips[pick], self.speaker[pick]
                self.ready.put([b.pin_memory() for b in batch] if BIG else batch)

    def reshuffle(self):
        with self.lock:
            self.order, self.at = torch.randperm(len(self.order)), 0


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    library, model = ClipLibrary(), SpeakerNet().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    start = last = time.time()
    step = 0
    while time.time() - start < LIMIT:
        clips, speaker = (b.to(DEVICE, non_blocking=True) for b in library.ready.get())
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            logits = model(clips + 0.5 * torch.randn_like(clips))
        loss = F.cross_entropy(logits.float(), speaker, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            if time.time() - last > RESHUFFLE_S:
                library.reshuffle()
                last = time.time()
        step += 1


if __name__ == "__main__":
    main()
