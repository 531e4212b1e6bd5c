"""What is watched in the process: the only code that may import torch.

A *recorded* source is started with a `Recording` and writes rows until it is stopped; a *live*
source computes the rows of its table when asked. `agent.training` and `agent.live` list them.
"""
