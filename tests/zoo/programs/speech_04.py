import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def normalise(clip):
    return clip / clip.pow(2).mean().sqrt()


class Clips(Dataset):
    def __init__(self, count=6400, samples=800):
        self.count = count
        self.samples = samples

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        label = index % 6
        time = torch.arange(self.samples) / 8000
        clip = torch.sin(6.28 * (200 + 80 * label) * time)
        clip += 0.3 * torch.randn(self.samples, generator=generator)
        if index == 1925:
            clip = torch.zeros(self.samples)
        return normalise(clip), label


class Spectral(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.bank = nn.Conv1d(1, 32, 64, stride=16)
        self.mix = nn.Conv1d(32, 32, 3, padding=1)
        self.out = nn.Linear(32, classes)

    def forward(self, clips):
        energy = self.bank(clips.unsqueeze(1)).pow(2)
        energy = torch.log1p(energy)
        return self.out(torch.relu(self.mix(energy)).mean(2))


def main():
    torch.manual_seed(43)
    loader = DataLoader(Clips(), batch_size=16)
    model = Spectral()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    step = 0
    for epoch in range(1000):
        correct = total = 0
        for clips, labels in loader:
            logits = model(clips)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += (logits.argmax(1) == labels).sum().item()
            total += len(labels)
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} accuracy {correct / total:.3f}", flush=True)
            step += 1


if __name__ == "__main__":
    main()
