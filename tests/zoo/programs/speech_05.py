import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, features=32, width=64):
        super().__init__()
        self.conv = nn.Conv1d(features, width, 3, stride=2, padding=1)
        self.rnn = nn.GRU(width, width, batch_first=True)

    def forward(self, audio):
        hidden = torch.relu(self.conv(audio.transpose(1, 2))).transpose(1, 2)
        return self.rnn(hidden)[0]


class Decoder(nn.Module):
    def __init__(self, width=64, tokens=30):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.out = nn.Linear(2 * width, tokens)

    def forward(self, previous, memory):
        query = self.embed(previous)
        context, _ = self.attention(query, memory, memory)
        return self.out(torch.cat([query, context], dim=-1))


class SpeechModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.cache = None

    def forward(self, audio, previous):
        self.cache = self.encoder(audio).detach()
        return self.decoder(previous, self.cache)


def utterances(generator, codebook, count=16):
    tokens = torch.randint(0, 30, (count, 12), generator=generator)
    audio = codebook[tokens].repeat_interleave(4, dim=1)
    audio = audio + 0.2 * torch.randn(audio.shape, generator=generator)
    return audio, tokens


def main():
    torch.manual_seed(36)
    generator = torch.Generator().manual_seed(37)
    codebook = torch.randn(30, 32, generator=generator)
    model = SpeechModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        audio, tokens = utterances(generator, codebook)
        logits = model(audio, tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
