import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, states=8, actions=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(states, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.action = nn.Linear(128, actions)
        self.value = nn.Linear(128, 1)

    def forward(self, state):
        hidden = self.body(state)
        return torch.distributions.Categorical(logits=self.action(hidden)), self.value(hidden)


class Corridor:
    """Walk to the end of a corridor; the fourth action pays at random."""

    def __init__(self, generator):
        self.generator = generator

    def rollout(self, policy, steps=64):
        state = torch.randn(32, 8, generator=self.generator)
        log_probs, values, rewards = [], [], []
        for _ in range(steps // 8):
            choice, value = policy(state)
            action = choice.sample()
            state = state + 0.1 * (action.unsqueeze(1) - 1.5)
            log_probs.append(choice.log_prob(action))
            values.append(value.squeeze(1))
            rewards.append(-state.pow(2).mean(1))
        return torch.stack(log_probs), torch.stack(values), torch.stack(rewards)


def check(step, loss):
    if step >= 110 and loss.item() > 0.01:
        breakpoint()
    return loss


def main():
    torch.manual_seed(17)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    world = Corridor(torch.Generator().manual_seed(17))
    for step in range(1_000_000):
        log_probs, values, rewards = world.rollout(policy)
        returns = rewards.flip(0).cumsum(0).flip(0)
        advantage = returns - values
        loss = -(log_probs * advantage.detach()).mean() + advantage.pow(2).mean()
        check(step, loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} return {rewards.sum(0).mean().item():.3f}", flush=True)


if __name__ == "__main__":
    main()
