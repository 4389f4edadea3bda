"""Ceilings by memory bandwidth: bytes by hand from public models' shapes, the published figure, the ridge, mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.ceiling import Drafting, Machine, Routing, ceiling_of
from analysis.ceiling_quantization import named_quantization, quantization_of
from analysis.ceiling_weights import footprint_of
from analysis.model_config import read_config
from tests.analysis.conftest import write_run
from tokenswarm.errors import InputError
from tokenswarm.records import Phase, RequestRecord

DATA = Path(__file__).parents[1] / "data"
MODELS = DATA / "models"
SPARK = DATA / "published" / "spark_qwen3.6_35b.csv"
PLAIN = quantization_of({})


def test_published_ceiling(capsys: pytest.CaptureFixture[str]) -> None:
    """273 GB/s and 3 GB a token give 91 tok/s, of which the 28.7 measured are 32 %."""
    part = f"{SPARK}#one draft token/fp8"
    assert main(["ceiling", part, "--bandwidth", "273", "--gb-per-token", "3"]) == 0
    text = capsys.readouterr().out
    assert "273 GB/s / 3 GB a token = 91.0 tok/s" in text
    assert "28.7 tok/s, 32% of it" in text


def test_dense_model_by_hand() -> None:
    """Llama 3.1 8B: 32 layers of 41,943,040 attention and 176,160,768 MLP weights, an output layer of 525,336,576."""
    footprint = footprint_of(read_config(MODELS / "llama-3.1-8b.json"), PLAIN, 16)
    # q and o: 4096 x 4096 each, k and v: 4096 x 1024 each; three matrices of 4096 x 14336
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert footprint.weights == 32 * layer + 2 * 128_256 * 4096 == 8_029_995_008  # 8.03 billion, as published
    assert footprint.always == 2 * (32 * layer + 128_256 * 4096) == 15_009_316_864
    assert footprint.experts == 0
    assert footprint.kv_token == 32 * 2 * 8 * 128 * 2 == 131_072
    level = ceiling_of(footprint, Machine(1000.0), None, 4, 1000, Drafting())
    # 15.009 GB of weights, 4 x 131.072 MB of cache, 4 x 8 KB of embeddings
    read = 15_009_316_864 + 4 * 131_072_000 + 4 * 8192
    assert level.bytes_step == read
    assert level.least_tok_s == level.most_tok_s == pytest.approx(4 * 1e12 / read)


def test_mixture_of_experts_by_hand() -> None:
    """Qwen3 30B-A3B: 128 experts of 4,718,592 weights in each of 48 layers; one token needs 8, two need 15.5."""
    config = read_config(MODELS / "qwen3-30b-a3b.json")
    footprint = footprint_of(config, PLAIN, 16)
    # q and o: 2048 x 4096, k and v: 2048 x 512; the router: 2048 x 128
    outside = 48 * (2 * 2048 * 4096 + 2 * 2048 * 512 + 2048 * 128) + 151_936 * 2048
    experts = 48 * 128 * 3 * 2048 * 768
    assert footprint.weights == outside + experts + 151_936 * 2048 == 30_531_911_680  # 30.5 billion, as published
    assert (footprint.always, footprint.experts) == (2 * outside, 2 * experts)
    assert footprint.active == outside + experts // 16  # 3.04 billion; 3.35 with the embedding table
    assert footprint.kv_token == 48 * 2 * 4 * 128 * 2
    level = ceiling_of(footprint, Machine(273.0), Routing(128, 8, 0.5), 2, 0, Drafting())
    touched = 1 - (120 / 128) ** 2
    assert level.share == pytest.approx(touched)
    read = 2 * outside + touched * 2 * experts + 2 * 4096
    assert level.least_tok_s == pytest.approx(2 * 273e9 / read)
    assert level.most_tok_s is not None
    assert level.most_tok_s > level.least_tok_s


def test_mixtral_by_hand() -> None:
    """Its intermediate_size is that of an expert: 8 of 3 x 4096 x 14336 in 32 layers make 46.7 billion weights."""
    footprint = footprint_of(read_config(MODELS / "mixtral-8x7b.json"), PLAIN, 16)
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    experts = 32 * 8 * 3 * 4096 * 14336
    assert footprint.experts == 2 * experts
    assert footprint.weights == 32 * (attention + 4096 * 8) + experts + 2 * 32_000 * 4096 == 46_702_526_464


def test_hybrid_model_in_fp8_by_hand() -> None:
    """Qwen3.6 35B-A3B: 30 layers of a delta net, 10 of gated attention, a shared expert; the output layer stays bf16.

    With about 3.6 GB a token its ceiling at 273 GB/s is near the 91 tok/s that 3 GB give.
    """
    config = read_config(MODELS / "qwen3.6-35b-a3b-fp8.json")
    footprint = footprint_of(config, quantization_of(config.quantization), 8)
    # qkv and z: 2048 x 12288 together, out: 4096 x 2048; b and a: 2048 x 32 each
    delta, gates = 2048 * 12_288 + 4096 * 2048, 2 * 2048 * 32
    attention = 2048 * 8192 + 2 * 2048 * 512 + 4096 * 2048  # queries twice as wide
    expert, router, head = 3 * 2048 * 512, 2048 * 256, 248_320 * 2048
    fp8, bf16 = 30 * delta + 10 * attention + 40 * expert, 30 * gates + 40 * router + head
    block = 1 + 4 / 128**2  # bytes a weight, with a scale of 4 bytes for each block
    assert footprint.always == pytest.approx(fp8 * block + bf16 * 2)
    assert footprint.experts == pytest.approx(40 * 256 * expert * block)
    assert footprint.weights == pytest.approx(34.66e9, rel=1e-3)
    assert footprint.kv_token == 10 * 2 * 2 * 256
    # 32 heads of 128 x 128 in float32 and three inputs of 8192 channels in bf16, read and written in 30 layers
    assert footprint.state == 30 * 2 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)
    level = ceiling_of(footprint, Machine(273.0), Routing(256, 8, 0.5), 1, 0, Drafting())
    assert level.least_tok_s == pytest.approx(75.6, abs=0.3)


@pytest.mark.parametrize(
    ("raw", "bits"),
    [
        ({"quant_method": "fp8"}, 8.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 16384),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 4.15625),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": False}, 4.25),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4.15625),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8.0),
        ({"quant_method": "mxfp4"}, 4.25),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
    ],
)
def test_bits_of_a_weight_with_scales(raw: dict[str, Any], bits: float) -> None:
    """int4 in groups of 128 has 16 bits of scale and 4 of zero point a group; NVFP4 8 bits for 16, MXFP4 8 for 32."""
    assert quantization_of(raw).bits == pytest.approx(bits)


@pytest.mark.parametrize(
    ("weights", "bits"),
    [
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, 4.5),
        ({"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, 4.25),
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}, 4.125),
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, 8.0),
        ({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}, 8 + 32 / 16384),
    ],
)
def test_compressed_tensors(weights: dict[str, Any], bits: float) -> None:
    """Its ignored modules keep their type; the output layer is quantized unless it is among them."""
    raw = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights}},
        "ignore": ["lm_head", "re:.*self_attn.*", "model.layers.3.mlp.shared_expert.up_proj"],
    }
    quantization = quantization_of(raw)
    assert quantization.bits == pytest.approx(bits)
    assert not quantization.quantizes("lm_head")
    assert not quantization.quantizes("layers.0.self_attn.q_proj")
    assert not quantization.quantizes("layers.3.mlp.shared_expert.up_proj")
    assert quantization.quantizes("layers.2.mlp.shared_expert.up_proj")


def test_quantization_of_a_server() -> None:
    """--quantization nvfp4: 4.5 bits for every linear layer, while router and output layer stay as they are."""
    config = read_config(MODELS / "qwen3-30b-a3b.json")
    footprint = footprint_of(config, named_quantization("nvfp4"), 8)
    linear = 48 * (2 * 2048 * 4096 + 2 * 2048 * 512)
    kept = 48 * 2048 * 128 + 151_936 * 2048
    assert footprint.always == pytest.approx(linear * 4.5 / 8 + kept * 2)
    assert footprint.kv_token == 48 * 2 * 4 * 128


def test_a_window_bounds_the_cache(tmp_path: Path) -> None:
    """Layers with a sliding window of 128 read no more than 128 tokens each."""
    document = json.loads((MODELS / "llama-3.1-8b.json").read_text())
    document |= {"layer_types": ["sliding_attention", "full_attention"] * 16, "sliding_window": 128}
    (tmp_path / "config.json").write_text(json.dumps(document))
    footprint = footprint_of(read_config(tmp_path / "config.json"), PLAIN, 16)
    level = ceiling_of(footprint, Machine(100.0), None, 1, 1000, Drafting())
    assert level.kv_bytes == 16 * 4096 * 1000 + 16 * 4096 * 128


def test_latent_attention_by_hand(tmp_path: Path) -> None:
    """DeepSeek V3: the cache holds 576 numbers a token and layer, 3 layers are dense, 671 billion weights in all."""
    document = {
        "model_type": "deepseek_v3", "torch_dtype": "bfloat16", "hidden_size": 7168, "num_hidden_layers": 61,
        "num_attention_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128, "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
        "moe_layer_freq": 1, "vocab_size": 129280, "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(document))
    footprint = footprint_of(read_config(tmp_path / "config.json"), PLAIN, 16)
    assert footprint.kv_token == 61 * 576 * 2
    assert footprint.weights == pytest.approx(671.0e9, rel=1e-3)
    assert footprint.active + 129280 * 7168 == pytest.approx(37.5e9, rel=0.01)  # published as 37 billion


def test_speculative_decoding() -> None:
    """2 drafts of which 60 % are kept: 2.2 tokens a step and stream, for the experts that 3 tokens touch."""
    config = read_config(MODELS / "qwen3-30b-a3b.json")
    footprint = footprint_of(config, PLAIN, 16)
    level = ceiling_of(footprint, Machine(273.0), Routing(128, 8, 0.0), 1, 0, Drafting(2, 0.6))
    touched = 1 - (120 / 128) ** 3
    assert level.least_tok_s == pytest.approx(2.2 * 273e9 / (footprint.always + touched * footprint.experts + 3 * 4096))


def test_above_the_ridge_there_is_no_ceiling_by_bandwidth() -> None:
    """Llama 8B at 1 TB/s and 150 TFLOP/s: two operations a weight make 9,994 tok/s, reached at 150 streams."""
    footprint = footprint_of(read_config(MODELS / "llama-3.1-8b.json"), PLAIN, 16)
    machine = Machine(1000.0, 150.0)
    # bytes a step / flops a token x flops: 15.009e9 / 1e12 s for 150e12 / (2 x 7.5047e9) tok/s = 150.0 tokens
    below, above = (ceiling_of(footprint, machine, None, streams, 0, Drafting()) for streams in (149, 151))
    assert (below.above_ridge, above.above_ridge) == (False, True)
    assert above.most_tok_s is None
    assert above.compute_tok_s == pytest.approx(150e12 / (2 * 7_504_658_432))


def test_shares_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One user, 100 tokens in 10.1 s after prompts of 900: context 950, and the share of the ceiling by hand."""
    records = [
        RequestRecord(
            level=0, concurrency=1, phase=Phase.MEASURED, ticket=i, sent_s=i * 10.1, first_token_s=i * 10.1 + 0.1,
            last_token_s=(i + 1) * 10.1, finished_s=(i + 1) * 10.1, output_tokens=100, prompt_tokens=900,
            token_source="usage", finish_reason="stop", traffic="chat",
        )
        for i in range(3)
    ]  # fmt: skip
    run = write_run(tmp_path / "run", records, levels=[{"concurrency": 1}])
    assert (
        main(["ceiling", str(run), "--bandwidth", "273", "--config", str(MODELS / "llama-3.1-8b.json"), "--json"]) == 0
    )
    (level,) = json.loads(capsys.readouterr().out)["levels"]
    ceiling = 273e9 / (15_009_316_864 + 950 * 131_072 + 8192)
    assert level["context_tokens"] == 950
    assert level["ceiling_low_tok_s"] == pytest.approx(ceiling)
    assert level["output_share_low"] == pytest.approx(100 / 10.1 / ceiling)
    assert level["decode_share_low"] == pytest.approx(9.9 / ceiling)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_key_value_heads": None}, "num_key_value_heads"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings"),
        ({"moe_intermediate_size": None}, "moe_intermediate_size"),
        ({"num_experts": None}, "num_experts"),
        ({"head_dim": None}, "head_dim"),
        ({"torch_dtype": "int3"}, "torch_dtype"),
        ({"model_type": "mamba"}, "model_type 'mamba'"),
        ({"layer_types": ["mamba"] * 48}, "layer_types"),
        ({"hidden_size": "many"}, "hidden_size is 'many'"),
    ],
)
def test_what_is_missing_is_named_and_not_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], named: str
) -> None:
    """One line with the file and the key, exit code 2; --set gives what is missing."""
    document = json.loads((MODELS / "qwen3-30b-a3b.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document | change))
    asked = ["ceiling", "--bandwidth", "273", "--config", str(path), "--streams", "1", "--context", "0"]
    assert main(asked) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert str(path) in lines[0]
    assert named in lines[0]
    key = next(iter(change))
    value = json.dumps(document.get(key, ["full_attention"] * 48))
    assert main([*asked, "--set", f"{key}={value}"]) == 0


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ({"quant_method": "exl9"}, "exl9"),
        ({"quant_method": "awq", "bits": 4, "zero_point": True}, "group_size"),
        ({"quant_method": "modelopt", "quant_algo": "W9"}, "W9"),
    ],
)
def test_unknown_quantization_is_named(raw: dict[str, Any], named: str) -> None:
    """Neither method nor group size are guessed."""
    with pytest.raises(InputError, match=named):
        quantization_of(raw)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--bandwidth", "0", "--gb-per-token", "3"], "--bandwidth"),
        (["--bandwidth", "273"], "--config"),
        (["--bandwidth", "273", "--config", str(MODELS / "llama-3.1-8b.json")], "--streams"),
        (["--bandwidth", "1", "--config", "nowhere.json"], "nowhere.json"),
        (["--bandwidth", "1", "--config", str(SPARK)], "wanted JSON"),
        (["--bandwidth", "1", "--config", str(MODELS / "llama-3.1-8b.json"), "--draft-tokens", "2"], "--acceptance"),
        (
            [f"{SPARK}#primary sweep/fp8", "--bandwidth", "1", "--config", str(MODELS / "llama-3.1-8b.json")],
            "--context",
        ),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], options: list[str], named: str) -> None:
    """Exit code 2, naming what is wrong or missing."""
    assert main(["ceiling", *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert named in lines[0]
