"""A model of our store as sentence-transformers and infinity want it: links to its files, and their configs."""

import json
from pathlib import Path

from services.inference.cards import ModelCard, ModelKind, Pooling
from services.inference.checkpoint import CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE
from services.inference.store import ModelStore

_SPECIALS = {
    "bert": {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"},
    "xlm-roberta": {
        "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "unk_token": "<unk>",
        "pad_token": "<pad>",
    },
}  # fmt: skip


def make_peer_folder(store: ModelStore, card: ModelCard, folder: Path) -> Path:
    """Fill `folder` (new) and return it."""
    folder.mkdir(parents=True)
    origin = store.folder(card)
    for name in (WEIGHTS_FILE, TOKENIZER_FILE):
        (folder / name).symlink_to(origin / name)
    config = json.loads((origin / CONFIG_FILE).read_text(encoding="utf-8"))
    reranker = card.kind is ModelKind.RERANKER
    base = {"bert": "Bert", "xlm-roberta": "XLMRoberta"}[card.architecture]
    config["architectures"] = [base + ("ForSequenceClassification" if reranker else "Model")]
    if reranker:
        config["id2label"], config["label2id"] = {"0": "LABEL_0"}, {"LABEL_0": 0}
    _write(folder / CONFIG_FILE, config)
    # The tokenizer's class matters: another one may fill in token types that our graph and the model's authors use.
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": card.max_tokens}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    if card.architecture != "bert":
        inputs.remove("token_type_ids")
    _write(folder / "tokenizer_config.json", tokenizer | _SPECIALS[card.architecture] | {"model_input_names": inputs})
    if not reranker:
        _write_modules(folder, card)
    return folder


def _write_modules(folder: Path, card: ModelCard) -> None:
    kinds = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(kinds)
    ]
    _write(folder / "modules.json", modules)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": card.max_tokens, "do_lower_case": False})
    pooling = {
        "word_embedding_dimension": card.dimensions,
        "pooling_mode_cls_token": card.pooling is Pooling.CLS,
        "pooling_mode_mean_tokens": card.pooling is Pooling.MEAN,
    }
    (folder / "1_Pooling").mkdir()
    (folder / "2_Normalize").mkdir()
    _write(folder / "1_Pooling" / "config.json", pooling)


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
