"""The sentence encoder all-MiniLM-L6-v2, defined anew with the names that its published weights have."""

import math

import torch
from safetensors.torch import load_file
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.self = nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")})
        self.output = nn.ModuleDict({"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width, eps=1e-12)})

    def forward(self, x, bias):
        query, key, value = (
            self.self[name](x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + bias
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        return self.output["LayerNorm"](self.output["dense"](mixed) + x)


class Layer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.attention = Attention(width, heads)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = nn.ModuleDict({"dense": nn.Linear(inner, width), "LayerNorm": nn.LayerNorm(width, eps=1e-12)})

    def forward(self, x, bias):
        x = self.attention(x, bias)
        inner = nn.functional.gelu(self.intermediate["dense"](x))
        return self.output["LayerNorm"](self.output["dense"](inner) + x)


class MiniLM(nn.Module):
    """Token numbers and a mask in, a sentence's direction out."""

    def __init__(self, width=384, heads=12, inner=1536, layers=6, tokens=30522):
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(tokens, width),
                "position_embeddings": nn.Embedding(512, width),
                "token_type_embeddings": nn.Embedding(2, width),
                "LayerNorm": nn.LayerNorm(width, eps=1e-12),
            }
        )
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer(width, heads, inner) for _ in range(layers))})

    def forward(self, ids, mask):
        e = self.embeddings
        places = torch.arange(ids.shape[1], device=ids.device)
        x = e["word_embeddings"](ids) + e["position_embeddings"](places) + e["token_type_embeddings"].weight[0]
        x = e["LayerNorm"](x)
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e4
        for layer in self.encoder["layer"]:
            x = layer(x, bias)
        weight = mask[:, :, None].to(x.dtype)
        mean = (x * weight).sum(1) / weight.sum(1)
        return mean / mean.norm(dim=1, keepdim=True)


def pretrained(folder):
    """The model with its weights, and a function that turns sentences into its inputs."""
    model = MiniLM()
    weights = load_file(folder / "model.safetensors")
    left = model.load_state_dict(weights, strict=False)
    assert not left.missing_keys
    words = {word: number for number, word in enumerate((folder / "vocab.txt").read_text().splitlines())}

    def encode(sentences):
        rows = [[words["[CLS]"], *pieces(sentence, words), words["[SEP]"]] for sentence in sentences]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        return ids, torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])

    return model.eval(), encode


def pieces(sentence, words):
    """WordPiece for plain lower-case sentences: the longest known beginning of what is left of each word."""
    for word in sentence.lower().replace(".", " .").split():
        begin = 0
        while begin < len(word):
            prefix = "##" if begin else ""
            end = next(end for end in range(len(word), begin, -1) if prefix + word[begin:end] in words)
            yield words[prefix + word[begin:end]]
            begin = end
