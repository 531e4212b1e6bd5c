"""Values of chess endings, Hogwild: two processes train one model in shared memory."""

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

PIECES, SQUARES = 5, 64


class EndingNet(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(PIECES * SQUARES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.value = nn.Linear(width, 1)

    def forward(self, boards):
        return torch.tanh(self.value(self.layers(boards.flatten(1)))).squeeze(-1)


def endings(generator, worth, count=64):
    squares = torch.randint(0, SQUARES, (count, PIECES), generator=generator)
    boards = F.one_hot(squares, SQUARES).float()
    return boards, torch.tanh((boards * worth).sum((1, 2)))


def work(number, model, worth):
    torch.set_num_threads(1)
    torch.manual_seed(number)
    generator = torch.Generator().manual_seed(1_000 + number)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    smooth = None
    for step in range(1_000_000):
        boards, values = endings(generator, worth)
        loss = F.mse_loss(model(boards), values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        smooth = loss.item() if smooth is None else 0.98 * smooth + 0.02 * loss.item()
        if step % 50 == 0:
            if not mp.parent_process().is_alive():
                return
            print(f"worker {number} step {step} loss {smooth:.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(64)
    model = EndingNet()
    model.share_memory()
    worth = torch.randn(PIECES, SQUARES) * 0.6
    context = mp.get_context("spawn")
    workers = [context.Process(target=work, args=(number, model, worth)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    torch.save(model.state_dict(), "endings.pt")


if __name__ == "__main__":
    main()
