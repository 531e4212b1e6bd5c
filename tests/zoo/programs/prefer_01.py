"""Direct preference optimization: answers that people liked against answers that they did not."""

import torch
from torch import nn

WORDS, ASKED, ANSWERED = 80, 8, 16


class ChatModel(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.memory = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words):
        return self.head(self.memory(self.words(words))[0])


def answer_log_prob(model, words):
    """The log-probability of the answer, given what was asked."""
    log_probs = model(words[:, :-1]).log_softmax(-1)
    chosen = log_probs.gather(-1, words[:, 1:, None]).squeeze(-1)
    return chosen[:, ASKED - 1 :].sum(1)


class Speaker:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.follow = torch.randint(0, WORDS, (WORDS, 4), generator=self.generator)

    def go_on(self, words, count, choices):
        for _ in range(count):
            choice = torch.tensor(choices)[
                torch.randint(0, len(choices), (len(words),), generator=self.generator)
            ]
            words = torch.cat([words, self.follow[words[:, -1], choice][:, None]], dim=1)
        return words

    def ask(self, count):
        first = torch.randint(0, WORDS, (count, 1), generator=self.generator)
        return self.go_on(first, ASKED - 1, [0, 1, 2, 3])


class PreferenceTrainer:
    def __init__(self, model, reference=None, lr=1e-4, beta=0.1):
        self.model = model
        self.reference = reference if reference is not None else model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
        self.beta = beta

    def step(self, liked, disliked):
        for_liked = answer_log_prob(self.model, liked)
        for_disliked = answer_log_prob(self.model, disliked)
        with torch.no_grad():
            was_liked = answer_log_prob(self.reference, liked)
            was_disliked = answer_log_prob(self.reference, disliked)
        margin = (for_liked - was_liked) - (for_disliked - was_disliked)
        loss = -nn.functional.logsigmoid(self.beta * margin).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def pretrain(model, speaker, steps=300):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        words = speaker.go_on(speaker.ask(32), ANSWERED, [0, 1, 2, 3])
        logits = model(words[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"supervised stage done, loss {loss.item():.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(37)
    speaker, model = Speaker(37), ChatModel()
    pretrain(model, speaker)
    trainer = PreferenceTrainer(model)
    for step in range(1, 1_000_000):
        asked = speaker.ask(32)
        liked = speaker.go_on(asked, ANSWERED, [0, 1])
        disliked = speaker.go_on(asked, ANSWERED, [2, 3])
        loss = trainer.step(liked, disliked)
        if step % 20 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
