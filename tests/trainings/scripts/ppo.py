"""PPO after CleanRL: rollouts under no_grad, then epochs of minibatches over them."""

import torch
import torch.nn as nn
from torch.distributions.categorical import Categorical
from truth import Truth, planned

NUM_STEPS, NUM_ENVS, UPDATE_EPOCHS, NUM_MINIBATCHES = 16, 8, 2, 2
CLIP_COEF, ENT_COEF, VF_COEF, MAX_GRAD_NORM = 0.2, 0.01, 0.5, 0.5

torch.manual_seed(1)


def layer_init(layer, std=2.0**0.5):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(8, 768)), nn.Tanh(), layer_init(nn.Linear(768, 768)), nn.Tanh(),
            layer_init(nn.Linear(768, 1), std=1.0),
        )  # fmt: skip
        self.actor = nn.Sequential(
            layer_init(nn.Linear(8, 768)), nn.Tanh(), layer_init(nn.Linear(768, 768)), nn.Tanh(),
            layer_init(nn.Linear(768, 4), std=0.01),
        )  # fmt: skip

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


agent = Agent()
truth = Truth(agent=agent)
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
target = torch.randn(8, 4)
updates_per_rollout = UPDATE_EPOCHS * NUM_MINIBATCHES
rollouts = max(1, planned(16) // updates_per_rollout)

next_obs = torch.randn(NUM_ENVS, 8)
for rollout in range(rollouts):
    obs, actions, logprobs, rewards, values = [], [], [], [], []
    with truth.timed("rollout"):
        for _ in range(NUM_STEPS):
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
            reward = (next_obs @ target).gather(1, action.unsqueeze(1)).squeeze(1)
            obs.append(next_obs)
            actions.append(action)
            logprobs.append(logprob)
            rewards.append(reward)
            values.append(value.flatten())
            next_obs = torch.randn(NUM_ENVS, 8)
    b_obs, b_actions = torch.cat(obs), torch.cat(actions)
    b_logprobs, b_returns, b_values = torch.cat(logprobs), torch.cat(rewards), torch.cat(values)
    b_advantages = b_returns - b_values
    for _ in range(UPDATE_EPOCHS):
        order = torch.randperm(len(b_obs))
        for mb in order.chunk(NUM_MINIBATCHES):
            with truth.timed("forward"):
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(
                    b_obs[mb], b_actions[mb]
                )
            ratio = (newlogprob - b_logprobs[mb]).exp()
            adv = b_advantages[mb]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            pg_loss = torch.max(
                -adv * ratio, -adv * ratio.clamp(1 - CLIP_COEF, 1 + CLIP_COEF)
            ).mean()
            v_loss = 0.5 * ((newvalue.view(-1) - b_returns[mb]) ** 2).mean()
            loss = pg_loss - ENT_COEF * entropy.mean() + v_loss * VF_COEF
            optimizer.zero_grad()
            with truth.timed("backward"):
                loss.backward()
            norm = nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD_NORM)
            with truth.timed("optimizer"):
                optimizer.step()
            truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], norm=norm.item())

truth.finish(agent)
