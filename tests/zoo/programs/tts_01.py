"""Text to mel-spectrogram model: phoneme encoder, duration-expanded convolutional decoder."""

import os
import time

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", 32)))

PHONES, MELS, DIM, BATCH = 60, 80, 64, 8
MAX_SECONDS = 600


class ConvBlock(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.conv = nn.Conv1d(DIM, 2 * DIM, 3, padding=dilation, dilation=dilation)
        self.mix = nn.Conv1d(DIM, DIM, 1)

    def forward(self, x):
        h = self.conv(self.norm(x).transpose(1, 2))
        a, b = h.chunk(2, 1)
        return x + self.mix(torch.tanh(a) * torch.sigmoid(b)).transpose(1, 2)


class TextToMel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(PHONES, DIM)
        self.encoder = nn.Sequential(*[ConvBlock(1) for _ in range(3)])
        self.duration = nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, 1))
        self.decoder = nn.Sequential(*[ConvBlock(2 ** (k % 4)) for k in range(8)])
        self.out = nn.Linear(DIM, MELS)

    def forward(self, phones, durations):
        h = self.encoder(self.embed(phones))
        log_dur = self.duration(h).squeeze(-1)
        frames = [z.repeat_interleave(d, dim=0) for z, d in zip(h, durations)]
        return self.out(self.decoder(nn.utils.rnn.pad_sequence(frames, batch_first=True))), log_dur


class Speech:
    def __init__(self, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.voice = torch.randn(PHONES, MELS, generator=self.g)
        self.length = torch.randint(2, 6, (PHONES,), generator=self.g)

    def batch(self):
        phones = torch.randint(PHONES, (BATCH, 24), generator=self.g)
        durations = self.length[phones] + torch.randint(2, phones.shape, generator=self.g)
        mels = [self.voice[p].repeat_interleave(d, dim=0) for p, d in zip(phones, durations)]
        mel = nn.utils.rnn.pad_sequence(mels, batch_first=True, padding_value=-4.0)
        mel = F.avg_pool1d(mel.transpose(1, 2), 3, 1, 1).transpose(1, 2)
        mask = torch.arange(mel.shape[1]) < durations.sum(1, keepdim=True)
        return phones, durations, mel + 0.1 * torch.randn(mel.shape, generator=self.g), mask


def main():
    torch.manual_seed(0)
    data, model = Speech(), TextToMel()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    ema = {k: v.clone() for k, v in model.state_dict().items()}
    deadline, step = time.time() + MAX_SECONDS, 0
    while time.time() < deadline:
        phones, durations, mel, mask = data.batch()
        pred, log_dur = model(phones, durations)
        mel_loss = (pred - mel).abs().mean(-1)[mask].mean()
        dur_loss = F.mse_loss(log_dur, durations.float().log())
        loss = mel_loss + 0.1 * dur_loss
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        with torch.no_grad():
            for k, v in model.state_dict().items():
                ema[k].lerp_(v, 0.001)
        step += 1
        if step % 50 == 0:
            print(
                f"step {step} mel {mel_loss.item():.4f} dur {dur_loss.item():.4f} "
                f"{step / (MAX_SECONDS - deadline + time.time()):.1f} steps/s",
                flush=True,
            )


if __name__ == "__main__":
    main()
