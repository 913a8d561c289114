"""Time-LLM around a language model that is made here: two layers, 32 wide."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from tests.support.forked_cli import run
from tests.support.tiny_tasks import tiny_task
from tuner import load_model
from tuner.cli.variants import choices_that_fail
from tuner.config import Architecture, Backend, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.errors import UsageError
from tuner.files.environment import LLM_VARIABLE
from tuner.models.frozen_part import count_parameters
from tuner.models.llm_folder import with_hash
from tuner.models.registry import build_model
from tuner.models.time_llm import TimeLLM, top_lags
from tuner.spec.definition import StudyDefinition, differences
from tuner.spec.study_file import StudyFile, load_study_file, studies_folder
from tuner.training.fit import fit
from tuner.training.step import Step

LINES = [
    "Dataset description: a generated sum of waves, hour by hour",
    "Task description: forecast the next steps given the previous steps",
    "Input statistics: min value -0.12, max value 0.98, median value 0.345, the trend of input is",
    "upward downward, top 5 lags are 1, 2, 3, 24, 12. 6789e+-05",
]
SMALL = {"prompt_tokens": 24, "patch_length": 8, "patch_step": 4, "n_heads": 2, "n_prototypes": 20}
H = Hyperparameters(
    learning_rate=1e-3,
    weight_decay=0.01,
    batch_size=64,
    dropout=0.1,
    hidden_size=16,
    own={"llm_layers": 2},
)


def write_tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=letters, show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return int(tokenizer.get_vocab_size())


def write_model(folder: Path, kind: str = "gpt2", seed: int = 0) -> Path:
    folder.mkdir(parents=True)
    words = write_tokenizer(folder)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config: Any = GPT2Config(vocab_size=words, n_embd=32, n_layer=2, n_head=2, **ends)
    if kind == "llama":
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
        more = {"num_hidden_layers": 3, "num_key_value_heads": 2}
        config = LlamaConfig(vocab_size=words, **sizes, **more, **ends)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("llm") / "gpt2")


@pytest.fixture(scope="module")
def data() -> DeviceData:
    return to_device(prepare(tiny_task()), "cpu")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Beside other work two of them wait for each other, at every tiny operation."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def architecture(folder: Path, **more: Any) -> Architecture:
    return Architecture(model="time-llm", settings={"folder": str(folder), **SMALL, **more})


def built(folder: Path, data: DeviceData, **more: Any) -> TimeLLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build_model(architecture(folder, **more), data.shapes, H)
    assert isinstance(model, TimeLLM)
    return model


def study_file(folder: Path, llm: str, layers: str = "low = 1\nhigh = 2") -> Path:
    text = (studies_folder() / "time-llm.toml").read_text()
    for name, value in (*SMALL.items(), ("llm_layers", 2)):
        text = "\n".join(
            f"{name} = {value}" if line.startswith(f"{name} = ") else line
            for line in text.split("\n")
        )
    text = text.replace("low = 3\nhigh = 6", layers)
    text = text.replace("[model_settings]", f'[model_settings]\nfolder = "{llm}"')
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def definition(file: StudyFile) -> StudyDefinition:
    task = load_task("demo").definition()
    return StudyDefinition.of(file, task=task, data_hash="0" * 64, training=file.training)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_it_forecasts_all_quantiles_of_each_window_alone(
    kind: str, data: DeviceData, tmp_path: Path
) -> None:
    model = built(write_model(tmp_path / kind, kind), data).eval()
    batch = data.test.gather(torch.arange(5))
    forecast = model(batch.past, batch.future, batch.static)
    s = data.shapes
    assert forecast.shape == (5, s.horizon, s.n_targets, s.n_quantiles)
    alone = model(batch.past[2:3], None, None)
    assert torch.allclose(alone, forecast[2:3], atol=1e-5)
    assert len(getattr(model.frozen, "h", None) or model.frozen.layers) == 2, "truncated"
    assert model.frozen.config._attn_implementation == "sdpa"


def test_the_weights_are_those_of_the_folder(gpt2: Path, data: DeviceData) -> None:
    frozen = built(gpt2, data).frozen
    with safe_open(gpt2 / "model.safetensors", framework="pt") as held:
        stored = held.get_tensor("transformer.h.1.mlp.c_fc.weight")
    assert torch.equal(frozen.h[1].mlp.c_fc.weight, stored)


def test_the_frozen_part_has_no_gradient_optimiser_state_or_dropout(
    gpt2: Path, data: DeviceData
) -> None:
    model = built(gpt2, data)
    config = RunConfig(architecture=architecture(gpt2), hyperparameters=H, training=_epochs(1))
    before = [each.clone() for each in model.frozen.parameters()]
    step = Step(config, data, model)
    step.set_learning_rate(1e-2)
    model.train()
    for _ in range(2):
        step.train(data.train.gather(torch.arange(16)))
    assert not model.frozen.training
    assert all(each.grad is None for each in model.frozen.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.frozen.parameters(), strict=True))
    trained = [*model.parameters()]
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in trained)
    in_state = {name.split("/")[1] for name in step.state() if name.startswith("optimizer/")}
    assert len(in_state) == len(trained)
    assert not any("frozen" in name for name in model.state_dict())
    counted = count_parameters(model)
    assert counted.frozen == sum(each.numel() for each in before)
    assert counted.trained == sum(each.numel() for each in trained)


def _epochs(count: int, **more: Any) -> TrainingSettings:
    return TrainingSettings(max_epochs=count, **more)


def test_beside_a_part_in_bf16_the_rest_is_trained_in_fp32(gpt2: Path, data: DeviceData) -> None:
    model, exact = built(gpt2, data), built(gpt2, data)
    model.frozen.to(torch.bfloat16)  # as on a GPU
    batch = data.train.gather(torch.arange(8))
    model.train()
    model(batch.past).square().mean().backward()
    assert {each.grad.dtype for each in model.parameters() if each.grad is not None} == {
        torch.float32
    }
    with torch.no_grad():
        there, here = model.eval()(batch.past), exact.eval()(batch.past)
    assert there.dtype == torch.float32
    assert torch.allclose(there, here, atol=0.05)
    assert next(model.to("cpu").frozen.parameters()).dtype == torch.float32


def test_checkpointed_activations_give_the_same_gradient(gpt2: Path, data: DeviceData) -> None:
    gradients = []
    for again in (False, True):
        model = built(gpt2, data)
        training = _epochs(1, checkpoint_activations=again)
        config = RunConfig(architecture=architecture(gpt2), hyperparameters=H, training=training)
        torch.manual_seed(3)
        Step(config, data, model).train(data.train.gather(torch.arange(8)))
        gradients.append([each.grad for each in model.parameters()])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*gradients, strict=True))


def test_a_prompt_is_written_and_tokenised_once_for_each_window(
    gpt2: Path, data: DeviceData
) -> None:
    config = RunConfig(
        architecture=architecture(gpt2, words="once"), hyperparameters=H, training=_epochs(2)
    )
    result = fit(config, data)
    assert isinstance(result.model, TimeLLM)
    prompts = result.model.prompts
    windows = {
        row.numpy().tobytes()
        for split in (data.train, data.val)
        for row in split.gather(torch.arange(len(split)))
        .past[..., :2]
        .transpose(1, 2)
        .flatten(0, 1)
    }
    assert prompts.made == len(windows)
    again = fit(config, data)
    assert isinstance(again.model, TimeLLM)
    assert again.model.prompts is prompts
    assert prompts.made == len(windows), "the next training finds them"
    assert (result.n_frozen, result.best_val_loss) == (again.n_frozen, again.best_val_loss)
    assert result.n_frozen > 0


def test_the_prompt_says_what_the_window_is_like(gpt2: Path, data: DeviceData) -> None:
    hours = torch.arange(24.0)
    window = torch.stack([hours / 23, torch.sin(hours * torch.pi / 3)], dim=1)  # (24, 2)
    model = built(gpt2, data, words="waves", prompt_tokens=400)
    rows = model.prompt_tokens(window.unsqueeze(0))
    tokenizer = model.prompts._tokenizer
    rising, waves = (tokenizer.decode(row.tolist(), skip_special_tokens=False) for row in rows)
    assert "Dataset description: waves Task description: forecast the next 6 steps" in rising
    assert "min value 0, max value 1, median value 0.5, the trend of input is upward" in rising
    assert "top 5 lags are 6, 12, " in waves
    assert top_lags(window.double().numpy().T, 2)[1].tolist() == [6, 12]


def test_other_ways_to_run_it_fall_back_to_eager_with_the_reason(
    gpt2: Path, data: DeviceData
) -> None:
    training = _epochs(1, backend=Backend.COMPILE)
    result = fit(
        RunConfig(architecture=architecture(gpt2), hyperparameters=H, training=training), data
    )
    assert result.backend is Backend.EAGER
    assert result.backend_fallback == "each window's prompt is looked up on the host"


def test_the_study_is_the_folders_content_wherever_it_lies(gpt2: Path, tmp_path: Path) -> None:
    copy, changed = tmp_path / "copy", tmp_path / "changed"
    for folder in (copy, changed):
        shutil.copytree(gpt2, folder)
    (changed / "generation_config.json").write_text("{}")
    here, there, other = (
        definition(load_study_file(str(study_file(tmp_path, llm=str(each)))))
        for each in (gpt2, copy, changed)
    )
    assert here.identity() == there.identity()
    assert StudyDefinition.from_json(here.to_json()).identity() == here.identity()
    said = differences(here, other)
    assert said == [f"the language model in {changed} changed since the study was made"]


def test_a_folder_that_will_not_do_is_named_in_one_line(
    gpt2: Path, data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LLM_VARIABLE, raising=False)
    with pytest.raises(UsageError, match=f"set {LLM_VARIABLE}=FOLDER, or folder under"):
        load_study_file("time-llm").architecture()
    with pytest.raises(UsageError, match="there is no such folder"):
        built(tmp_path / "none", data)
    with pytest.raises(UsageError, match=r"holds no config.json and no weights"):
        built(tmp_path, data)
    shutil.copytree(gpt2, tmp_path / "bad")
    (tmp_path / "bad" / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="is no tokenizer"):
        built(tmp_path / "bad", data)
    (tmp_path / "bad" / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UsageError, match="is of the kind 'bert'"):
        built(tmp_path / "bad", data)
    with pytest.raises(UsageError, match=r"llm_layers is 3, and the language model in .* has 2"):
        build_model(architecture(gpt2), data.shapes, dataclasses.replace(H, own={"llm_layers": 3}))
    pinned = with_hash({"folder": str(gpt2)})
    monkeypatch.setenv(LLM_VARIABLE, str(gpt2))
    elsewhere = with_hash(pinned | {"folder": str(tmp_path / "none")})
    assert elsewhere == pinned, "where this host has it"


def test_more_layers_than_there_are_is_said_by_the_check(gpt2: Path, data: DeviceData) -> None:
    study = load_study_file("time-llm")
    settings, defaults = (
        {"folder": str(gpt2), **SMALL},
        {**study.defaults.values(), "llm_layers": 2},
    )
    widened = study.space.model_dump() | {"llm_layers": {"type": "int", "low": 1, "high": 4}}
    file = study.model_validate(
        study.model_dump() | {"model_settings": settings, "defaults": defaults, "space": widened}
    )
    (said,) = choices_that_fail(file, data.shapes)
    assert "llm_layers = 4 fails: llm_layers is 4, and the language model in" in said


@pytest.mark.slow
def test_a_launch_ends_complete_and_its_saved_model_holds_no_frozen_weight(
    gpt2: Path, tmp_path: Path
) -> None:
    shutil.copytree(gpt2, tmp_path / "llm")
    study_file(tmp_path, llm="llm")

    def tuner(*words: str) -> str:
        done = run(*words, folder=tmp_path)
        assert done.code == 0, done.err
        return done.out

    search = ("--variant=mine.toml", "--task=demo", "--cpu", "--workers=2", "--trials=1")
    quick = ("--max-epochs=2", "--reruns=0", "--no-estimate")
    tuner("launch", *search, *quick)
    trial = json.loads(tuner("trial", "0", "--study=demo-time-llm", "--json"))
    assert trial["state"] == "complete"
    assert 0 < trial["values"]["test_mql"] < float("inf")
    assert trial["attributes"]["n_frozen"] > 0
    assert "frozen ones" in tuner("trial", "0", "--study=demo-time-llm")

    tuner("train", "--study=demo-time-llm", "--pick=mql", "--cpu", "--output=model.safetensors")
    saved = load_model(tmp_path / "model.safetensors")
    card = json.loads((tmp_path / "model.json").read_text())
    with safe_open(tmp_path / "model.safetensors", framework="pt") as held:
        names = [*held.keys()]
    assert sorted(names) == sorted(saved.model.state_dict())
    assert not any(name.startswith(("h.", "wte", "_frozen")) for name in names)
    assert len(card["architecture"]["settings"]["folder_sha256"]) == 64
    assert card["n_frozen"] > 0
    rows = prepare(load_task("demo"))
    batch = to_device(rows, "cpu").test.gather(torch.arange(3))
    with torch.no_grad():
        first, again = (
            load_model(tmp_path / "model.safetensors").model(batch.past, batch.future, batch.static)
            for _ in range(2)
        )
    assert torch.equal(first, again)

    (tmp_path / "llm" / "generation_config.json").write_text("{}")
    with pytest.raises(UsageError, match="is not the language model that this was made with"):
        load_model(tmp_path / "model.safetensors")
    refused = run("launch", *search, *quick, folder=tmp_path)
    assert refused.code == 2
    assert f"language model in {tmp_path / 'llm'} changed since the study was" in refused.error
