"""Character-level language model on per-rank shards."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BLOCK = 32
VOCAB = 64


class CharLM(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.out(hidden)


def read_shard(rank, world_size):
    generator = torch.Generator().manual_seed(7)
    text = torch.randint(0, VOCAB, (112_000,), generator=generator)
    cut = [0, 61_440, len(text)]
    return text[cut[rank % 2] : cut[rank % 2 + 1]]


def batches(shard, batch_size=16):
    span = batch_size * BLOCK
    for start in range(0, len(shard) - span - 1, span):
        piece = shard[start : start + span + 1]
        yield piece[:-1].view(batch_size, BLOCK), piece[1:].view(batch_size, BLOCK)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(CharLM())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loss_fn = nn.CrossEntropyLoss()
    shard = read_shard(rank, dist.get_world_size())
    step = 0
    for epoch in range(1000):
        for inputs, targets in batches(shard):
            logits = model(inputs)
            loss = loss_fn(logits.reshape(-1, VOCAB), targets.reshape(-1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 10 == 0:
                print(f"[rank {rank}] epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
            step += 1
        dist.barrier()


if __name__ == "__main__":
    main()
