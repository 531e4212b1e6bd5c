"""Takes an encoder of patients' letters and fine-tunes it to tell how urgent a letter is."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WORDS, LENGTH, TOPICS, URGENCIES = 300, 20, 16, 5


class LetterModel(nn.Module):
    def __init__(self, outputs, width=64):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, outputs)

    def forward(self, letters):
        return self.head(self.encoder(self.words(letters)).mean(1))


def letters(count=4000):
    generator = torch.Generator().manual_seed(21)
    weights = torch.randn(WORDS, TOPICS, generator=generator)
    kept = torch.randint(0, WORDS, (count, LENGTH), generator=generator)
    topics = weights[kept].mean(1)
    score = topics[:, 0] - topics[:, 1] + 0.05 * torch.randn(count, generator=generator)
    borders = score.quantile(torch.linspace(0, 1, URGENCIES + 1)[1:-1])
    return kept, topics.argmax(1), torch.bucketize(score, borders)


def pretrain(model, texts, topics, steps=60):
    """Topics first: every rank does the same, with the same seed."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        rows = torch.randint(0, len(texts), (32,))
        loss = nn.functional.cross_entropy(model(texts[rows]), topics[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    texts, topics, urgency = letters()
    base = LetterModel(TOPICS)
    pretrain(base, texts, topics)
    model = DistributedDataParallel(base, find_unused_parameters=True)
    model.module.head = nn.Linear(base.head.in_features, URGENCIES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    dataset = TensorDataset(texts, urgency)
    sampler = DistributedSampler(dataset, shuffle=True, seed=1)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    step = 0
    for epoch in range(1000):
        sampler.set_epoch(epoch)
        for rows, labels in loader:
            loss = nn.functional.cross_entropy(model(rows), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and step % 10 == 0:
                print(f"step {step} epoch {epoch} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
