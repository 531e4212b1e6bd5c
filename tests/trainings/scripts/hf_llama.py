"""A small Llama of transformers in a loop of one's own."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup
from truth import Truth, planned


def main():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    model = LlamaForCausalLM(config)
    model.train()
    truth = Truth(model=model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    steps = planned(14)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 3, 5000)

    for step in range(steps):
        input_ids = torch.randint(0, 512, (4, 48))
        with truth.timed("forward"):
            outputs = model(input_ids=input_ids, labels=input_ids)
        loss = outputs.loss
        with truth.timed("backward"):
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        lr = optimizer.param_groups[0]["lr"]
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=lr, norm=norm.item())
        scheduler.step()
        optimizer.zero_grad()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.3f}")
    truth.finish(model)


if __name__ == "__main__":
    main()
