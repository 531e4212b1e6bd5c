"""Translation after the tutorial: encoder and decoder, an optimizer each, teacher forcing."""

import random

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(69)
random.seed(69)
HIDDEN, VOCAB, LENGTH = 256, 400, 10


class EncoderRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.gru = nn.GRU(HIDDEN, HIDDEN, batch_first=True)

    def forward(self, x):
        return self.gru(self.embedding(x))


class DecoderRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.gru = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.out = nn.Linear(HIDDEN, VOCAB)

    def forward(self, token, hidden):
        output, hidden = self.gru(torch.relu(self.embedding(token)), hidden)
        return self.out(output), hidden


encoder, decoder = EncoderRNN(), DecoderRNN()
truth = Truth(encoder=encoder, decoder=decoder)
encoder_optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
decoder_optimizer = torch.optim.Adam(decoder.parameters(), lr=1e-3)
criterion = nn.NLLLoss()
for epoch in range(planned(14)):
    source = torch.randint(0, VOCAB, (32, LENGTH))
    target = source.flip(1)
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    with truth.timed("forward"):
        _, hidden = encoder(source)
    token, outputs = torch.zeros(32, 1, dtype=torch.long), []
    forced = random.random() < 0.5
    for i in range(LENGTH):
        with truth.timed("forward"):
            output, hidden = decoder(token, hidden)
        outputs.append(output)
        token = target[:, i : i + 1] if forced else output.argmax(-1).detach()
    logits = torch.cat(outputs, 1).log_softmax(-1)
    loss = criterion(logits.flatten(0, 1), target.flatten())
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        encoder_optimizer.step()
    with truth.timed("optimizer"):
        decoder_optimizer.step()
    truth.step(
        loss.item(),
        lr={
            "encoder_optimizer": encoder_optimizer.param_groups[0]["lr"],
            "decoder_optimizer": decoder_optimizer.param_groups[0]["lr"],
        },
    )

truth.finish(encoder, decoder)
