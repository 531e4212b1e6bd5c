"""CTC speech recogniser on log-mel utterances with per-speaker mean normalisation."""

import gzip
import itertools
import json
import os
import tempfile
import threading
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

N_MELS, VOCAB, N_UTTS, N_SPEAKERS = 40, 29, 1600, 64


class SpeakerStats:
    """Feature means by utterance, kept in memory and flushed to disk in the background."""

    def __init__(self, path, flush_every=3.0):
        self.path = path
        self.flush_every = flush_every
        self.lock = threading.Lock()
        self.means = {}
        threading.Thread(target=self._flush_loop, daemon=True).start()

    def update(self, utt_ids, means):
        with self.lock:
            for utt, mean in zip(utt_ids.tolist(), means.tolist()):
                self.means.setdefault(utt % N_SPEAKERS, {})[utt] = mean

    def speaker_mean(self, speaker):
        with self.lock:
            rows = list(self.means.get(speaker, {}).values())
        return torch.tensor(rows).mean(0) if rows else torch.zeros(N_MELS)

    def _flush_loop(self):
        while True:
            time.sleep(self.flush_every)
            tmp = self.path + ".tmp"
            with self.lock, gzip.open(tmp, "wt") as f:
                json.dump(self.means, f)
            os.replace(tmp, self.path)


class Utterances(Dataset):
    def __init__(self, stats):
        g = torch.Generator().manual_seed(3)
        self.stats = stats
        self.templates = torch.randn(VOCAB, N_MELS, generator=g)
        self.lengths = torch.randint(8, 16, (N_UTTS,), generator=g)
        self.offset = torch.randn(N_SPEAKERS, N_MELS, generator=g)

    def __len__(self):
        return N_UTTS

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        n = int(self.lengths[i])
        text = torch.randint(1, VOCAB, (n,), generator=g)
        feats = self.templates[text].repeat_interleave(6, dim=0)
        raw = feats + self.offset[i % N_SPEAKERS] + 0.3 * torch.randn(feats.shape, generator=g)
        return i, raw - self.stats.speaker_mean(i % N_SPEAKERS), raw.mean(0), text


def collate(batch):
    ids, feats, means, texts = zip(*batch)
    lens, text_lens = (torch.tensor([len(z) for z in zs]) for zs in (feats, texts))
    x, y = (nn.utils.rnn.pad_sequence(zs, batch_first=True) for zs in (feats, texts))
    return torch.tensor(ids), x, lens, y, text_lens, torch.stack(means)


class Recogniser(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.front = nn.Conv1d(N_MELS, dim, 5, stride=2, padding=2)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, VOCAB)

    def forward(self, x):
        h = F.gelu(self.front(x.transpose(1, 2))).transpose(1, 2)
        return self.out(self.rnn(h)[0]).log_softmax(-1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    stats = SpeakerStats(os.path.join(tempfile.mkdtemp(dir="."), "speaker_means.json.gz"))
    loader = DataLoader(
        Utterances(stats),
        batch_size=16,
        shuffle=True,
        num_workers=1,
        collate_fn=collate,
        drop_last=True,
    )
    model = Recogniser()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    for epoch in itertools.count():
        seen_ids, seen_means = [], []
        for ids, x, lens, y, text_lens, means in loader:
            logp = model(x).transpose(0, 1)
            loss = F.ctc_loss(logp, y, (lens + 1) // 2, text_lens, zero_infinity=True)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen_ids, seen_means = [*seen_ids, ids], [*seen_means, means]
            if step % 20 == 10:
                stats.update(torch.cat(seen_ids), torch.cat(seen_means))
                seen_ids, seen_means = [], []
            step += 1
        print(f"epoch {epoch} step {step} ctc {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
