"""An LSTM language model, the way of pytorch/examples/word_language_model."""

import argparse

import torch
import torch.nn as nn
from truth import Truth, planned

parser = argparse.ArgumentParser()
parser.add_argument("--emsize", type=int, default=200)
parser.add_argument("--nhid", type=int, default=256)
parser.add_argument("--bptt", type=int, default=20)
parser.add_argument("--lr", type=float, default=2.0)
parser.add_argument("--clip", type=float, default=0.25)
args = parser.parse_args()
torch.manual_seed(1111)


class RNNModel(nn.Module):
    def __init__(self, ntoken):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(ntoken, args.emsize)
        self.rnn = nn.LSTM(args.emsize, args.nhid, 2, dropout=0.2)
        self.decoder = nn.Linear(args.nhid, ntoken)

    def forward(self, x, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        decoded = self.decoder(self.drop(output))
        return decoded.view(-1, decoded.size(-1)), hidden


model = RNNModel(1000)
truth = Truth(model=model)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
stream = torch.randint(0, 1000, (401, 8))
hidden = None
steps = planned(16)
step = 0
while step < steps:
    for i in range(0, 400, args.bptt):
        data, targets = stream[i : i + args.bptt], stream[i + 1 : i + 1 + args.bptt].reshape(-1)
        model.zero_grad()
        if hidden is not None:
            hidden = tuple(h.detach() for h in hidden)
        with truth.timed("forward"):
            output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        with truth.timed("backward"):
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], norm=norm.item())
        step += 1
        if step == steps:
            break
truth.finish(model)
