"""Run by vLLM's own Python: writes a tiny Qwen2-VL with random weights, which takes images.

Usage: vllm_vision_model.py FOLDER. About 5 MB. Images are cut, counted and cached as those of a large one are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.utils.logging import disable_progress_bar
from vllm_model import make_tokenizer

PATCH, MERGE = 14, 2
SMALLEST, LARGEST = 56 * 56, 448 * 448  # pixels of an image as the model sees it
PLACES = {
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
}
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' }}"
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}"
    "{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
IMAGES = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2VLProcessor",
    "patch_size": PATCH,
    "merge_size": MERGE,
    "temporal_patch_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "rescale_factor": 1 / 255,
    "resample": 3,
    **dict.fromkeys(("do_rescale", "do_normalize", "do_resize", "do_convert_rgb"), True),
    "size": {"shortest_edge": SMALLEST, "longest_edge": LARGEST},
    "min_pixels": SMALLEST,
    "max_pixels": LARGEST,
}


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLForConditionalGeneration:
    torch.manual_seed(0)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    shape = Qwen2VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
            "bos_token_id": None,
            "rope_parameters": {
                "rope_type": "default", "type": "mrope", "mrope_section": [4, 6, 6], "rope_theta": 10000.0
            },
            **ends,
        },
        vision_config={
            "depth": 2,
            "embed_dim": 128,
            "hidden_size": 128,
            "num_heads": 4,
            "mlp_ratio": 2,
            "in_channels": 3,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
        },
        **{name: tokenizer.convert_tokens_to_ids(token) for name, token in PLACES.items()},
    )  # fmt: skip
    model = Qwen2VLForConditionalGeneration(shape).to(torch.bfloat16)
    model.generation_config = GenerationConfig(**ends)
    return model


if __name__ == "__main__":
    disable_progress_bar()
    folder = Path(sys.argv[1])
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(PLACES.values())})
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    make_model(tokenizer).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(IMAGES, indent=1), encoding="utf-8")
