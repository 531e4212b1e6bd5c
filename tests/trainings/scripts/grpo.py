"""Group relative policy optimization: sample, score, old and reference logits, then two updates."""

import copy

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(91)
VOCAB, DIM, PROMPT, NEW, GROUP = 100, 192, 4, 8, 24


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.rnn = nn.GRU(DIM, DIM, batch_first=True)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


policy = Policy()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
truth = Truth(policy=policy, reference=reference)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)


@torch.no_grad()
def generate(ids):
    policy.eval()
    for _ in range(NEW):
        with truth.timed("rollout"):
            logits = policy(ids)[:, -1]
        ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], 1)
    policy.train()
    return ids


def logps(model, ids, phase):
    with truth.timed(phase):
        logits = model(ids[:, :-1])
    return logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)[:, PROMPT - 1 :]


for update in range(planned(16) // 2):
    ids = generate(torch.randint(0, VOCAB, (1, PROMPT)).repeat(GROUP, 1))
    rewards = (ids[:, PROMPT:] % 2 == 0).float().mean(1)
    advantages = ((rewards - rewards.mean()) / (rewards.std() + 1e-4))[:, None]
    with torch.no_grad():
        ref = logps(reference, ids, "rollout")
        old = logps(policy, ids, "forward")
    for _ in range(2):
        new = logps(policy, ids, "forward")
        ratio = (new - old).exp()
        gain = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        kl = (ref - new).exp() - (ref - new) - 1
        loss = -(gain - 0.04 * kl).mean()
        with truth.timed("backward"):
            loss.backward()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        with truth.timed("optimizer"):
            optimizer.step()
        optimizer.zero_grad()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], norm=norm.item())

truth.finish(policy, reference)
