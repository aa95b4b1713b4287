"""The models of models.py: as torchvision and transformers define them, with random weights, and their export to
ONNX."""

import os

import torch

NAMES = ("resnet50", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "vit_b_16", "bert_base", "gpt2", "sentiment")


class Experts(torch.nn.Module):
    """Four two-layer experts, weighted by the softmax of a gate."""

    def __init__(self, width=4096, hidden=8192, count=4):
        super().__init__()
        self.gate = torch.nn.Linear(width, count)
        self.up = torch.nn.ModuleList(torch.nn.Linear(width, hidden) for _ in range(count))
        self.down = torch.nn.ModuleList(torch.nn.Linear(hidden, width) for _ in range(count))

    def forward(self, x):
        weights = torch.softmax(self.gate(x), -1)
        parts = [down(torch.relu(up(x))) for up, down in zip(self.up, self.down)]
        return sum(weights[:, i : i + 1] * p for i, p in enumerate(parts))


class Sentiment(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList(torch.nn.Conv1d(4096, 1024, k) for k in (3, 5, 7, 9))
        self.experts = Experts()
        sizes = [4096, 2048, 1024, 512, 2]
        self.dense = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x):
        x = torch.cat([torch.relu(c(x)).amax(-1) for c in self.convs], 1)
        x = self.experts(x)
        for i, layer in enumerate(self.dense):
            x = layer(x) if i == 3 else torch.relu(layer(x))
        return x


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, attention_mask=torch.ones_like(ids))[0]


def build(name, device):
    """The model in fp32 on the CPU, the same at each call, and a function from batch size to its input."""
    torch.manual_seed(0)
    if name == "sentiment":
        return Sentiment(), lambda b: torch.randn(b, 4096, 16)
    if name in ("bert_base", "gpt2"):
        import transformers

        if name == "bert_base":
            model = transformers.BertModel(transformers.BertConfig(attn_implementation="sdpa"))
            return Logits(model), lambda b: torch.randint(0, 30000, (b, 128))
        config = transformers.GPT2Config(attn_implementation="sdpa", use_cache=False)
        return Logits(transformers.GPT2Model(config)), lambda b: torch.randint(0, 50000, (b, 512))
    import torchvision

    model = getattr(torchvision.models, name)(weights=None).to(device)
    # Statistics of random images, so that values neither vanish nor grow on their way; a classifier that is not zero.
    model.train()
    for m in model.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.momentum = None
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(16, 3, 224, 224, device=device))
        for m in list(model.modules())[-1:]:
            if isinstance(m, torch.nn.Linear):
                m.weight.normal_(0, 0.02)
    return model.cpu(), lambda b: torch.randn(b, 3, 224, 224)


def export(model, x, path):
    """The model in fp32 as ONNX with its batch open; under another name until it is whole."""
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    torch.backends.mha.set_fastpath_enabled(False)  # one operator for all of an attention, which has no ONNX form
    torch.onnx.export(
        model,
        (x,),
        path + ".part",
        opset_version=17,
        dynamo=False,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes=axes,
    )
    os.replace(path + ".part", path)
