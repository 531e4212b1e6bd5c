import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self, tokens, length=32):
        self.tokens = tokens
        self.length = length

    def __len__(self):
        return (len(self.tokens) - 1) // self.length

    def __getitem__(self, index):
        start = index * self.length
        piece = self.tokens[start : start + self.length + 1]
        return piece[:-1], piece[1:]


class GPT(nn.Module):
    def __init__(self, vocab=96, width=64, length=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocab)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, ids):
        hidden = self.embed(ids) + self.position[: ids.shape[1]]
        return self.head(self.blocks(hidden, mask=self.mask, is_causal=True))


def next_batch(loader):
    return next(iter(loader))


def main():
    torch.manual_seed(101)
    tokens = torch.randint(0, 96, (50_000,))
    loader = DataLoader(Windows(tokens), batch_size=16)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        inputs, targets = next_batch(loader)
        logits = model(inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
