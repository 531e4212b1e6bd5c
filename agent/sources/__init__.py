"""What is watched in the process: the only code that may import torch.

A *recorded* source is started with a `Recording` and writes rows until it is stopped; a *live*
source computes the rows of its table when asked. `agent.recording.sources` and `agent.live.live`
list them.

None of this is loaded when the agent starts, only by the first use of what is recorded. So a new
source costs the start nothing, wherever it is imported; but where its first event may come before a
module is called, that event needs a line in `agent.recording.first_use`. What only a question needs
is imported in the function that answers it.
"""
