"""One trunk for four questions about a house; each step asks one of them, drawn by its share."""

import torch
from torch import nn

SHARES = {"price": 0.55, "sale": 0.3, "roof": 0.1, "damp": 0.05}
FEATURES = 24


class Houses(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(FEATURES, width),
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
        )
        self.heads = nn.ModuleDict(
            {
                "price": nn.Linear(width, 1),
                "sale": nn.Linear(width, 1),
                "roof": nn.Linear(width, 4),
                "damp": nn.Linear(width, 1),
            }
        )

    def forward(self, houses, task):
        return self.heads[task](self.trunk(houses))


class Task:
    """The houses that one question has been answered for; for some there are few."""

    def __init__(self, name, count, seed):
        self.name = name
        self.generator = torch.Generator().manual_seed(seed)
        self.houses = torch.randn(count, FEATURES, generator=self.generator)
        weights = torch.randn(FEATURES, 4, generator=self.generator) / FEATURES**0.5
        scores = torch.tanh(self.houses) @ weights
        if name == "price":
            self.answers = 1.5 * scores[:, 0] + 0.5 * scores[:, 1] * scores[:, 2]
        elif name == "roof":
            self.answers = scores.argmax(1)
        elif name == "sale":
            self.answers = (scores[:, 0] > 0).float()
        else:
            self.answers = (scores[:, 0] > 0.9).float()  # one in twelve

    def batch(self, size=64):
        rows = torch.randint(0, len(self.houses), (size,), generator=self.generator)
        return self.houses[rows], self.answers[rows]

    def loss(self, outputs, answers):
        if self.name == "roof":
            return nn.functional.cross_entropy(outputs, answers)
        if self.name == "price":
            return nn.functional.mse_loss(outputs.squeeze(1), answers)
        return nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(1), answers)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(67)
    counts = {"price": 20_000, "sale": 20_000, "roof": 6000, "damp": 4000}
    tasks = [Task(name, counts[name], seed) for seed, name in enumerate(SHARES)]
    shares = torch.tensor(list(SHARES.values()))
    model = Houses()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    smooth = {}
    for step in range(1, 1_000_000):
        task = tasks[torch.multinomial(shares, 1).item()]
        houses, answers = task.batch()
        loss = task.loss(model(houses, task.name), answers)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = smooth.get(task.name, loss.item())
        smooth[task.name] = mean + 0.05 * (loss.item() - mean)
        if step % 50 == 0:
            print(
                f"step {step}",
                *(f"{name} {value:.3f}" for name, value in smooth.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
