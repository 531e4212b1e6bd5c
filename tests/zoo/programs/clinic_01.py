"""Readmission of patients, learned with differential privacy (DP-SGD)."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

FEATURES = 30
CLIP, NOISE = 0.3, 1.0


class RiskNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.hidden = nn.Linear(FEATURES, width)
        self.risk = nn.Linear(width, 1)

    def forward(self, patients):
        return self.risk(torch.tanh(self.hidden(patients))).squeeze(-1)


class PrivateTrainer:
    def __init__(self, model, patients, returned, lr=0.5, rate=0.03):
        self.model, self.patients, self.returned, self.rate = model, patients, returned, rate
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
        self.each = vmap(grad_and_value(self.one_loss), in_dims=(None, 0, 0))

    def one_loss(self, parameters, patient, returned):
        score = functional_call(self.model, parameters, (patient[None],))
        return F.binary_cross_entropy_with_logits(score, returned[None])

    def step(self):
        """Poisson sampling, clipping of each gradient to CLIP, and noise of NOISE * CLIP on the sum."""
        pick = (torch.rand(len(self.patients)) < self.rate).nonzero().squeeze(1)
        parameters = {name: p.detach() for name, p in self.model.named_parameters()}
        gradients, losses = self.each(parameters, self.patients[pick], self.returned[pick])
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        factors = (CLIP / norms).clamp(max=1.0)
        expected = self.rate * len(self.patients)
        for name, parameter in self.model.named_parameters():
            total = torch.einsum("b,b...->...", factors, gradients[name])
            noise = NOISE * CLIP * torch.randn_like(total)
            parameter.grad = (total + noise) / expected
        self.optimizer.step()
        return losses.mean().item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(70)
    patients = torch.randn(12_000, FEATURES)
    score = patients[:, :8].sum(1) + 0.8 * patients[:, 8] * patients[:, 9]
    returned = (score + torch.randn(len(score)) > 0.5).float()
    trainer = PrivateTrainer(RiskNet(), patients, returned)
    smooth = None
    for step in range(100_000):
        loss = trainer.step()
        smooth = loss if smooth is None else 0.95 * smooth + 0.05 * loss
        if step % 20 == 0:
            print(f"step {step} loss {smooth:.4f}", flush=True)


if __name__ == "__main__":
    main()
