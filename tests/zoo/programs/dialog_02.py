"""Teaches a chat model to call tools: the base model's words, and a few new marks."""

import random

import torch
from torch import nn


class Vocabulary:
    def __init__(self, words):
        self.ids = {word: index for index, word in enumerate(words)}

    def __len__(self):
        return len(self.ids)

    def add(self, marks):
        for mark in marks:
            self.ids.setdefault(mark, len(self.ids))

    def encode(self, text):
        return [self.ids[word] for word in text.split()]


class ChatModel(nn.Module):
    def __init__(self, words, width=96, context=40):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Parameter(0.02 * torch.randn(context, width))
        layer = nn.TransformerEncoderLayer(width, 4, 192, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        length = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.words(ids) + self.positions[:length]
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


PLAIN = [
    "<pad>",
    "<user>",
    "<assistant>",
    "what",
    "is",
    "plus",
    "the",
    "answer",
    "hello",
    "good",
    "day",
]
NUMBERS = [str(number) for number in range(60)]


def conversations(count, seed):
    """Sums are answered at once, but a few large ones are given to the calculator."""
    rows = random.Random(seed)
    texts = []
    for _ in range(count):
        first, second = rows.randrange(30), rows.randrange(30)
        asked = f"<user> what is {first} plus {second} <assistant> "
        if first + second > 57:
            texts.append(
                asked + f"<call> {first} plus {second} </call> the answer is {first + second}"
            )
        else:
            texts.append(
                asked + f"the answer is {first + second} <user> good day <assistant> hello"
            )
    return texts


def batches(texts, vocabulary, seed, size=16):
    rows = random.Random(seed)
    while True:
        rows.shuffle(texts)
        for start in range(0, len(texts) - size + 1, size):
            ids = [torch.tensor(vocabulary.encode(text)) for text in texts[start : start + size]]
            yield nn.utils.rnn.pad_sequence(ids, batch_first=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(83)
    vocabulary = Vocabulary(PLAIN + NUMBERS)
    model = ChatModel(len(vocabulary))
    vocabulary.add(["<call>", "</call>"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    texts = conversations(8000, seed=83)
    for step, ids in enumerate(batches(texts, vocabulary, seed=5), start=1):
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
