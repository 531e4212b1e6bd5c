import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Wine(nn.Module):
    def __init__(self, inputs=13, width=64, classes=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, classes),
        )

    def forward(self, rows):
        return self.layers(rows)


def measurements(per_class=640):
    generator = torch.Generator().manual_seed(17)
    centres = torch.randn(4, 13, generator=generator)
    rows, labels = [], []
    for label in range(4):
        rows.append(centres[label] + torch.randn(per_class, 13, generator=generator))
        labels.append(torch.full((per_class,), label))
    return TensorDataset(torch.cat(rows), torch.cat(labels))


def main():
    torch.manual_seed(17)
    dataset = measurements()
    loader = DataLoader(dataset, batch_size=64, drop_last=True)
    model = Wine()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(100_000):
        correct = 0
        for rows, labels in loader:
            logits = model(rows)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += (logits.argmax(1) == labels).sum().item()
            step += 1
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} accuracy {correct / len(dataset):.3f}", flush=True)


if __name__ == "__main__":
    main()
