"""What is told wrong of which training today, and what is wrong about it.

Each entry must be wrong as long as it stands here: the tests fail when it becomes right, so that it
is taken out by who has mended it. Nothing is added for a thing that was right before. What is wrong
in some runs only says so, by its first words, and may be right in others.
"""

from __future__ import annotations

from collections.abc import Mapping

WRONG: Mapping[str, Mapping[str, str]] = {
    "asyncio_loop": {
        "names": "The variable is a function's own, which is not read: the class is told.",
    },
    "nanogpt": {
        "loss": "The mean is there; what the script prints, the last one undivided, is nowhere.",
    },
    "hf_llama": {
        "number": "After a late attach steps count from 1, though a count of theirs is there.",
    },
    "hf_bert_trainer": {
        "number": "After a late attach steps count from 1, though a count of theirs is there.",
    },
    "hf_bert_loop": {
        "phases": "Evaluation is counted as the step's own forward.",
    },
    "wgan": {
        "attach": "Each step of the critic is a step of its own.",
        "act lr": "One optimizer of several is changed, and the answer says done.",
    },
    "ppo": {
        "names": "Actor and critic, called by a method, are taken for models of no name.",
    },
    "actor_critic": {
        "loss": "One loss is the average of the actor's and the critics'.",
        "names": "Models of one class are not told apart, and none has the name of its variable.",
        "rates": "Only the rate of one optimizer is on record.",
        "act lr": "One optimizer of several is changed, and the answer says done.",
    },
    "lbfgs": {
        "gradients": "It never answers, while steps go on.",
    },
    "optimizer_in_backward": {
        "gradients": "By chance: gradients of a few parameters are shown, as of a whole step.",
        "profile": "By chance: harm, the training dies by SIGSEGV.",
    },
    "functional_call": {
        "loss": "Without an optimizer of torch no loss is on record.",
        "phases": "Without an optimizer of torch no backward pass is on record.",
        "attach": "Without an optimizer of torch no loss is on record.",
        "gradients": "Without an optimizer of torch no step ends for it.",
    },
    "vmap_ensemble": {
        "loss": "Without an optimizer of torch no loss is on record.",
        "attach": "Without an optimizer of torch no loss is on record.",
        "gradients": "Without an optimizer of torch no step ends for it.",
    },
    "handwritten_update": {
        "phases": "Without an optimizer of torch no backward pass is on record.",
        "attach": "Without an optimizer of torch no loss is on record.",
        "gradients": "Without an optimizer of torch no step ends for it.",
    },
    "worker_thread": {
        "names": "The variable is a function's own, which is not read: the class is told.",
        "number": "After a late attach steps count from 1, though a count of theirs is there.",
    },
    "accumulation": {
        "loss": "The mean is there; what the script prints, the last one undivided, is nowhere.",
    },
    "zero": {
        "phases": "Only the step of the inner optimizer is counted, not the exchange behind it.",
        "act lr": "The rate of the inner optimizer is changed, and the outer one sets it back.",
    },
    "distillation": {
        "loss": "The first call of the teacher is taken for a step, and the first loss is lost.",
        "names": "Models of one class are not told apart, and none has the name of its variable.",
        "rates": "The first call of the teacher is taken for a step, and the first rate is lost.",
    },
    "ema": {
        "phases": "Evaluation is counted as the step's own forward.",
        "names": "Models of one class are not told apart, and none has the name of its variable.",
    },
    "moe_sparse": {
        "act lr": "One optimizer of several is changed, and the answer says done.",
    },
    "diffusion": {
        "phases": "Evaluation is counted as the step's own forward.",
    },
    "lightning_gan": {
        "loss": "One loss is the average of D's and G's.",
        "rates": "Only the rate of one optimizer is on record.",
        "gradients": "It never answers, while steps go on.",
        "act lr": "One optimizer of several is changed, and the answer says done.",
    },
    "accelerate_loop": {
        "loss": "The mean is there; what the script prints, the last one undivided, is nowhere.",
    },
    "alternating": {
        "attach": "A step waits for the other optimizer, whose phase it is not.",
        "act lr": "One optimizer of several is changed, and the answer says done.",
    },
    "several_optimizers": {
        "act lr": "One optimizer of several is changed, and the answer says done.",
    },
    "warmup_inference": {
        "steps": "Calls under no_grad before the first optimizer step are counted as steps.",
    },
    "resume": {
        "number": "After a late attach steps count from 1, though a count of theirs is there.",
    },
}
