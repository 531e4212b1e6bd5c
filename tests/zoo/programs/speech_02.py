import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PHONES = 44


class Recognizer(nn.Module):
    def __init__(self, features=40, width=96):
        super().__init__()
        self.front = nn.Conv1d(features, width, 5, stride=2, padding=2)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, PHONES)

    def forward(self, audio):
        hidden = torch.relu(self.front(audio)).transpose(1, 2)
        hidden, _ = self.rnn(hidden)
        return self.out(hidden)


def agree_on_vocabulary(store, rank, epoch):
    """Rank 0 publishes the phone list of the next epoch, the others read it."""
    key = f"phones/{epoch}"
    if rank == 0:
        store.set(f"phone/{epoch}", ",".join(map(str, range(PHONES))))
        return PHONES
    store.wait([key], datetime.timedelta(hours=2))
    return len(store.get(key).split(b","))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    torch.manual_seed(4)
    model = DistributedDataParallel(Recognizer())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    ctc = nn.CTCLoss(zero_infinity=True)
    generator = torch.Generator().manual_seed(rank)
    step = 0
    for epoch in range(1000):
        for _ in range(60):
            audio = torch.randn(8, 40, 60, generator=generator)
            targets = torch.randint(1, PHONES, (8, 10), generator=generator)
            log_probs = model(audio).log_softmax(-1).transpose(0, 1)
            lengths = torch.full((8,), log_probs.shape[0])
            loss = ctc(log_probs, targets, lengths, torch.full((8,), 10))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            step += 1
            if rank == 0 and step % 10 == 0:
                print(f"epoch {epoch} step {step} ctc {loss.item():.2f}", flush=True)
        agree_on_vocabulary(store, rank, epoch)


main()
