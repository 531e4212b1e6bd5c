"""Distil an ensemble of fixed experts into one student; keeps the best one on disk, with its held-out score."""

import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Settings:
    features: int = 128
    classes: int = 50
    hidden: int = 512
    batch: int = 96
    temperature: float = 2.0
    lr: float = 1e-4
    steps: int = 50_000
    seed: int = 29
    folder: str = "student"


class Experts(nn.Module):
    """Three small random networks, frozen; their mean logits are what the student has to learn."""

    def __init__(self, s):
        super().__init__()
        self.members = nn.ModuleList(
            nn.Sequential(nn.Linear(s.features, 128), nn.Tanh(), nn.Linear(128, s.classes))
            for _ in range(3)
        )
        for p in self.parameters():
            nn.init.normal_(p, std=0.25)
            p.requires_grad_(False)

    @torch.no_grad()
    def forward(self, x):
        return torch.stack([m(x) for m in self.members]).mean(0)


def make_student(s):
    return nn.Sequential(
        nn.Linear(s.features, s.hidden),
        nn.GELU(),
        nn.LayerNorm(s.hidden),
        nn.Linear(s.hidden, s.hidden),
        nn.GELU(),
        nn.LayerNorm(s.hidden),
        nn.Linear(s.hidden, s.hidden),
        nn.GELU(),
        nn.Linear(s.hidden, s.classes),
    )


class BestKeeper:
    """Scores and writes the student whenever its smoothed loss is the lowest so far."""

    def __init__(self, folder, experts, held_out, decay=0.98):
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, "best.pt")
        self.decay, self.smooth, self.best = decay, None, float("inf")
        self.held_out, self.answers, self.agree = held_out, experts(held_out).argmax(1), 0.0

    def update(self, step, loss, student, opt):
        before = loss if self.smooth is None else self.smooth
        self.smooth = self.decay * before + (1 - self.decay) * loss
        if self.smooth < self.best:
            self.best = self.smooth
            with torch.no_grad():
                right = student(self.held_out).argmax(1) == self.answers
                self.agree = right.float().mean().item()
            state = {"step": step, "student": student.state_dict(), "agree": self.agree}
            torch.save({**state, "opt": opt.state_dict()}, self.path + ".tmp")
            os.replace(self.path + ".tmp", self.path)


def kd_loss(student_logits, teacher_logits, t):
    guess, goal = F.log_softmax(student_logits / t, dim=1), F.softmax(teacher_logits / t, dim=1)
    return F.kl_div(guess, goal, reduction="batchmean") * t * t


def main():
    s = Settings()
    torch.set_num_threads(1)
    torch.manual_seed(s.seed)
    experts, student = Experts(s), make_student(s)
    opt = torch.optim.AdamW(student.parameters(), lr=s.lr)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: min(1.0, (n + 1) / 500))
    keeper = BestKeeper(s.folder, experts, torch.randn(1024, s.features))
    for step in range(1, s.steps + 1):
        x = torch.randn(s.batch, s.features)
        loss = kd_loss(student(x), experts(x), s.temperature)
        opt.zero_grad()
        loss.backward()
        opt.step()
        warm.step()
        keeper.update(step, loss.item(), student, opt)
        if step % 20 == 0:
            print(f"step {step} kd {keeper.smooth:.4f} agree {keeper.agree:.3f}", flush=True)


if __name__ == "__main__":
    main()
