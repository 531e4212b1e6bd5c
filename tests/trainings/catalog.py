"""The scripts, and what must be known of one to ask the right questions.

Nothing here says what is recorded of a script: that is judged against the script's own account.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

SCRIPTS = Path(__file__).parent / "scripts"

Rates = Literal["of optimizers", "set by the script", "of no optimizer", "none"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A script: how it is started and what it is asked.

    Attributes:
        name: The script's file, without its suffix.
        ranks: How many processes it takes.
        rates: Who decides on the learning rate: optimizers of torch (and their schedulers), the
            script at each step or epoch, or an update that is no optimizer of torch.
        layers: Whether each layer is a call; in what torch.compile has compiled it is none.
        numbered: Whether an optimizer, a scheduler or a trainer of it counts the steps, so that
            their numbers can be known by who comes late.
        backward: Whether it calls `backward()`; the gradients of others are results of functions.
        healthy: Whether nothing is wrong with it.
        repeatable: Whether two runs of it are the same to the bit.
        default: Whether the default run of the tests has it; the night has all.
    """

    name: str
    ranks: int = 1
    rates: Rates = "of optimizers"
    layers: bool = True
    numbered: bool = False
    backward: bool = True
    healthy: bool = True
    repeatable: bool = True
    default: bool = False

    @property
    def path(self) -> Path:
        """Where the script is."""
        return SCRIPTS / f"{self.name}.py"

    @property
    def trains(self) -> bool:
        """Whether anything is learnt in it."""
        return self.rates != "none"


_HAND: Rates = "set by the script"
_NO_OPTIMIZER: Rates = "of no optimizer"

TRAININGS = (
    Training(name="nanogpt", rates=_HAND),
    Training(name="hf_llama", numbered=True),
    Training(name="hf_bert_trainer", numbered=True),
    Training(name="hf_bert_loop"),
    Training(name="lstm"),
    Training(name="gan", default=True),
    Training(name="wgan"),
    Training(name="reinforce"),
    Training(name="ppo"),
    Training(name="actor_critic"),
    Training(name="lbfgs"),
    Training(name="optimizer_in_backward", default=True),
    Training(name="functional_call", rates=_NO_OPTIMIZER),
    Training(name="vmap_ensemble", rates=_NO_OPTIMIZER),
    Training(name="handwritten_update", rates=_NO_OPTIMIZER, default=True),
    Training(name="worker_thread", numbered=True),
    Training(name="asyncio_loop"),
    Training(name="compiled", layers=False),
    Training(name="amp_bf16"),
    Training(name="accumulation"),
    Training(name="fsdp2", ranks=2),
    Training(name="titan", ranks=2),
    Training(name="ddp_unused", ranks=2),
    Training(name="zero", ranks=2),
    Training(name="lora"),
    Training(name="dpo"),
    Training(name="distillation"),
    Training(name="ema"),
    Training(name="moe_sparse"),
    Training(name="diffusion"),
    Training(name="graphnet"),
    Training(name="detection"),
    Training(name="truncated_backprop"),
    Training(name="lightning_gan"),
    Training(name="accelerate_loop"),
    Training(name="curriculum"),
    Training(name="kfold"),
    Training(name="search"),
    Training(name="notebook"),
    Training(name="alternating"),
    Training(name="several_optimizers"),
    Training(name="evaluation", default=True),
    Training(name="warmup_inference"),
    Training(name="inference", rates="none"),
    Training(name="inference_server", rates="none"),
    Training(name="data_bound", healthy=False),
    Training(name="clipping"),
    Training(name="rate_by_hand", rates=_HAND),
    Training(name="rate_per_epoch", rates=_HAND),
    Training(name="resume", numbered=True),
    Training(name="sequential_lambda"),
    Training(name="forward_direct"),
    Training(name="weight_tying"),
    Training(name="gradient_checkpointing"),
    Training(name="pruning"),
    Training(name="multitask"),
    Training(name="recipe"),
    Training(name="sam"),
    Training(name="lookahead"),
    Training(name="adversarial"),
    Training(name="maml"),
    Training(name="pinn"),
    Training(name="sac"),
    Training(name="dqn"),
    Training(name="darts"),
    Training(name="seq2seq"),
    Training(name="factorization"),
    Training(name="style_transfer"),
    Training(name="forward_forward"),
    Training(name="grad_cache"),
    Training(name="cached_contrastive"),
    Training(name="mezo", rates=_NO_OPTIMIZER, backward=False),
    Training(name="swa"),
    Training(name="word2vec"),
    Training(name="scripted", layers=False),
    Training(name="lightning_fit"),
    Training(name="hf_trainer_eval", numbered=True),
    Training(name="tensor_parallel", ranks=2),
    Training(name="pipeline", ranks=2),
    Training(name="asyncio_models"),
    Training(name="ppo_apart"),
    Training(name="wgan_gp"),
    Training(name="late_heads"),
    Training(name="bare_tensors", rates=_NO_OPTIMIZER),
    Training(name="muon_adamw"),
    Training(name="federated"),
    Training(name="vqgan"),
    Training(name="energy"),
    Training(name="fixmatch"),
    Training(name="grpo"),
    Training(name="moco", rates=_HAND),
    Training(name="gradnorm"),
    Training(name="pipeline_interleaved", ranks=2),
    Training(name="chunked_batches"),
    Training(name="hogwild", repeatable=False),
    Training(name="a3c", repeatable=False),
    Training(name="trpo"),
    Training(name="neural_ode"),
    Training(name="dp_sgd", backward=False),
    Training(name="continual"),
    Training(name="cyclegan"),
    Training(name="pcgrad"),
    Training(name="hypernetwork"),
    Training(name="eval_thread"),
    Training(name="plateau"),
    Training(name="qat"),
    Training(name="world_model"),
)  # fmt: skip

BY_NAME = {training.name: training for training in TRAININGS}
