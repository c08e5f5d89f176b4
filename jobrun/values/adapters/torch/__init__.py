"""PyTorch: tensors and generators as values; modules, optimizers and schedulers as live objects."""

from __future__ import annotations

from typing import Final

from jobrun.values.adapters.torch.modules import ModuleAdapter
from jobrun.values.adapters.torch.optimizers import (
    GradScalerAdapter,
    OptimizerAdapter,
    SchedulerAdapter,
)
from jobrun.values.adapters.torch_tensors import TensorAdapter, TorchGeneratorAdapter

__all__ = ["ADAPTERS"]

_GENERATOR: Final = TorchGeneratorAdapter()
ADAPTERS: Final = {
    "torch.Tensor": TensorAdapter(),
    "torch._C.Generator": _GENERATOR,
    "torch.Generator": _GENERATOR,
    "torch.nn.modules.module.Module": ModuleAdapter(),
    "torch.optim.optimizer.Optimizer": OptimizerAdapter(),
    "torch.optim.lr_scheduler.LRScheduler": SchedulerAdapter(),
    "torch.amp.grad_scaler.GradScaler": GradScalerAdapter(),
}
