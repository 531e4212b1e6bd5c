"""Fine-tunes a small language model on doctors' notes with two ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORDS, PAD = 400, 0


class NotesModel(nn.Module):
    def __init__(self, width=64, context=256):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.positions = nn.Parameter(0.02 * torch.randn(context, width))
        layer = nn.TransformerEncoderLayer(width, 4, 160, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words):
        length = words.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.words(words) + self.positions[:length]
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


def notes(count=1200):
    """Notes of very different length; a word is followed by one of three."""
    generator = torch.Generator().manual_seed(2)
    follow = torch.randint(1, WORDS, (WORDS, 3), generator=generator)
    lengths = (8 * torch.exp(3.2 * torch.rand(count, generator=generator))).long()
    kept = []
    for length in lengths.tolist():
        note = [int(torch.randint(1, WORDS, (1,), generator=generator))]
        for choice in torch.randint(0, 3, (length,), generator=generator).tolist():
            note.append(int(follow[note[-1], choice]))
        kept.append(torch.tensor(note))
    return kept


def shard(texts, rank, world):
    """This rank's part; texts of like length stand together, for little padding."""
    texts = sorted(texts, key=len)
    each = len(texts) // world
    return texts[rank * each : (rank + 1) * each]


def batches(texts, generator, size=8):
    starts = range(0, len(texts) - size + 1, size)
    for index in torch.randperm(len(starts), generator=generator).tolist():
        rows = texts[starts[index] : starts[index] + size]
        yield nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(NotesModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    mine = shard(notes(), rank, world)
    generator = torch.Generator().manual_seed(rank)
    step = 0
    for epoch in range(1000):
        for words in batches(mine, generator):
            logits = model(words[:, :-1])
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1), words[:, 1:].flatten(), ignore_index=PAD
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if rank == 0 and step % 10 == 0:
                print(f"step {step} epoch {epoch} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
