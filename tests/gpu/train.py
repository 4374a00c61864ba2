"""A training step in PyTorch, timed: prints {"step_ms": ...}, the median, or {"missing": "torch"}.

A transformer of a size that a small GPU holds; the interpreter that runs this need have nothing of
this project.
"""

import json
import statistics
import time

WARM_UP, STEPS = 20, 100
BATCH, LENGTH, WIDTH = 16, 256, 512


def step_ms(torch) -> float:
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(BATCH, LENGTH, WIDTH, device="cuda")
    took = []
    for _ in range(WARM_UP + STEPS):
        begin = time.perf_counter()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
        took.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(took[WARM_UP:])


def main() -> None:
    try:
        import torch
    except ImportError:
        print(json.dumps({"missing": "torch"}))
        return
    print(json.dumps({"step_ms": step_ms(torch)}))


if __name__ == "__main__":
    main()
