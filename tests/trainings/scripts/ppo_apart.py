"""PPO with an optimizer each for actor and critic: the critic is called behind the actor's step."""

import torch
from torch import nn
from torch.distributions import Categorical
from truth import Truth, planned

CLIP, ENVS, HORIZON, EPOCHS = 0.2, 16, 8, 4

torch.manual_seed(11)
actor = nn.Sequential(
    nn.Linear(8, 768), nn.Tanh(), nn.Linear(768, 768), nn.Tanh(), nn.Linear(768, 4)
)
critic = nn.Sequential(
    nn.Linear(8, 768), nn.Tanh(), nn.Linear(768, 768), nn.Tanh(), nn.Linear(768, 1)
)
truth = Truth(actor=actor, critic=critic)
opt_actor = torch.optim.Adam(actor.parameters(), lr=3e-4)
opt_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
target = torch.randn(8, 4)

for _ in range(max(1, planned(16) // EPOCHS)):
    states, actions, log_probs, returns = [], [], [], []
    with truth.timed("rollout"):
        for _ in range(HORIZON):
            state = torch.randn(ENVS, 8)
            with torch.no_grad():
                policy = Categorical(logits=actor(state))
            action = policy.sample()
            states.append(state)
            actions.append(action)
            log_probs.append(policy.log_prob(action))
            returns.append((state @ target).gather(1, action.unsqueeze(1)).squeeze(1))
    state, action = torch.cat(states), torch.cat(actions)
    log_prob, reward = torch.cat(log_probs), torch.cat(returns)
    advantage = (reward - reward.mean()) / reward.std()
    for _ in range(EPOCHS):
        with truth.timed("forward"):
            logits = actor(state)
        ratio = (Categorical(logits=logits).log_prob(action) - log_prob).exp()
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        actor_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
        opt_actor.zero_grad()
        with truth.timed("backward"):
            actor_loss.backward()
        with truth.timed("optimizer"):
            opt_actor.step()
        with truth.timed("forward"):
            value = critic(state)
        critic_loss = nn.functional.mse_loss(value.squeeze(1), reward)
        opt_critic.zero_grad()
        with truth.timed("backward"):
            critic_loss.backward()
        with truth.timed("optimizer"):
            opt_critic.step()
        truth.step(
            {"actor_loss": actor_loss.item(), "critic_loss": critic_loss.item()},
            lr={
                "opt_actor": opt_actor.param_groups[0]["lr"],
                "opt_critic": opt_critic.param_groups[0]["lr"],
            },
        )

truth.finish(actor, critic)
