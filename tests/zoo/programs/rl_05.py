import torch
from torch import nn


class CartPole:
    """The classic, for many carts at once."""

    def __init__(self, carts, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.zeros(carts, 4)
        self.reset(torch.ones(carts, dtype=torch.bool))

    def reset(self, which):
        fresh = torch.rand(self.state.shape, generator=self.generator) * 0.1 - 0.05
        self.state = torch.where(which.unsqueeze(1), fresh, self.state)

    def step(self, action):
        x, v, angle, spin = self.state.unbind(1)
        force = 20.0 * action - 10.0
        temporary = (force + 0.05 * spin**2 * angle.sin()) / 1.1
        turn = 9.8 * angle.sin() - angle.cos() * temporary
        turn = turn / (0.5 * (4 / 3 - 0.1 * angle.cos() ** 2 / 1.1))
        push = temporary - 0.05 * turn * angle.cos() / 1.1
        self.state = torch.stack(
            [x + 0.02 * v, v + 0.02 * push, angle + 0.02 * spin, spin + 0.02 * turn], dim=1
        )
        fallen = (x.abs() > 2.4) | (angle.abs() > 0.21)
        self.reset(fallen)
        return self.state, 1.0 - fallen.float(), fallen


def main(horizon=128, carts=16):
    torch.manual_seed(94)
    world = CartPole(carts, 94)
    policy = nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
    )
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for step in range(1_000_000):
        states, actions, rewards, ends = [], [], [], []
        for _ in range(horizon):
            state = world.state
            with torch.no_grad():
                action = torch.distributions.Categorical(logits=policy(state)).sample()
            _, reward, fallen = world.step(action.float())
            for store, value in zip(
                (states, actions, rewards, ends), (state, action, reward, fallen)
            ):
                store.append(value)
        returns, future = [], torch.zeros(carts)
        for reward, fallen in zip(reversed(rewards), reversed(ends)):
            future = reward + 0.98 * future * ~fallen
            returns.append(future)
        returns = torch.stack(returns[::-1]).flatten()
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        logits = policy(torch.cat(states))
        chosen = torch.distributions.Categorical(logits=logits).log_prob(torch.cat(actions))
        loss = -(chosen * returns).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            falls = torch.stack(ends).float().sum().item()
            print(f"step {step} falls {falls:.0f} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
