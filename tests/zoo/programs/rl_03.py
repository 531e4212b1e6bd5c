import torch
from torch import nn


class ActorCritic(nn.Module):
    def __init__(self, observations=10, actions=3):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(observations, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU()
        )
        self.actor = nn.Linear(96, actions)
        self.critic = nn.Linear(96, 1)

    def forward(self, observation):
        hidden = self.body(observation)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


class Balance:
    """Keep ten numbers near zero with three pushes."""

    def __init__(self, seed, count=24):
        self.generator = torch.Generator().manual_seed(seed)
        self.push = torch.randn(3, 10, generator=self.generator) * 0.2
        self.state = torch.randn(count, 10, generator=self.generator)

    def act(self, action):
        drift = 0.05 * torch.randn(self.state.shape, generator=self.generator)
        self.state = (0.9 * self.state + self.push[action] + drift).clamp(-3, 3)
        return -self.state.abs().mean(1)


def main():
    torch.manual_seed(92)
    world = Balance(92)
    model = ActorCritic()
    actor_optimizer = torch.optim.Adam(
        [*model.body.parameters(), *model.actor.parameters()], lr=3e-4
    )
    critic_optimizer = torch.optim.Adam(
        [*model.body.parameters(), *model.critic.parameters()], lr=1e-3
    )
    for step in range(1_000_000):
        logits, value = model(world.state)
        policy = torch.distributions.Categorical(logits=logits)
        action = policy.sample()
        reward = world.act(action)
        with torch.no_grad():
            target = reward + 0.9 * model(world.state)[1]
        advantage = target - value
        actor_loss = -(policy.log_prob(action) * advantage.detach()).mean()
        loss = actor_loss + 0.5 * advantage.pow(2).mean() - 0.01 * policy.entropy().mean()
        actor_optimizer.zero_grad()
        critic_optimizer.zero_grad()
        loss.backward()
        actor_optimizer.step()
        critic_optimizer.step()
        if step % 20 == 0:
            print(
                f"step {step} reward {reward.mean().item():.3f} loss {loss.item():.3f}", flush=True
            )


if __name__ == "__main__":
    main()
