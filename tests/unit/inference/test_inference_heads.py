"""What is made of the values of single tokens, and the layouts without padding that they come in."""

import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, processors

from services.inference.backends.heads import TokenHeads, matrices, scored_tokens, special_ids
from services.inference.backends.packing import Packed, Run
from services.inference.checkpoint import EncoderConfig
from services.inference.types import Encoded, Output
from services.inference.worker import pad
from tests.helpers.inference import card, encoded, of_length, write_tiny_model


def _packed(*texts: Encoded) -> Packed:
    return Packed.of(pad(list(texts), frozenset({Output.SPARSE})))


def _heads(*silent: int) -> TokenHeads:
    return TokenHeads(sparse=None, multi_vector=None, silent_ids=np.array(silent, np.int32))


def test_terms_when_a_token_comes_twice_then_its_largest_weight_counts_and_specials_do_not():
    packed = _packed(encoded(2, 9, 7, 9, 3), encoded(2, 7, 3))
    weights = np.array([5, 0.5, 0.25, 0.75, 5, 5, 0, 5], np.float32)
    first, second = _heads(2, 3).terms(packed, weights)
    assert first.indices.tolist() == [7, 9]
    assert first.values.tolist() == [0.25, 0.75]
    assert len(second.indices) == 0


def test_terms_when_a_weight_is_not_a_number_then_it_is_kept_for_the_check_behind():
    weights = np.array([0, 0.5, np.nan, 0.75, 0], np.float32)
    (vector,) = _heads(2, 3).terms(_packed(encoded(2, 9, 9, 9, 3)), weights)
    assert np.isnan(vector.values).all()


def test_matrices_when_split_then_each_text_has_its_tokens_but_the_first():
    packed = _packed(encoded(2, 9, 3), encoded(2, 3), encoded(2, 5, 6, 3))
    scored = scored_tokens(packed)
    assert scored.tolist() == [1, 2, 4, 6, 7, 8]
    vectors = np.stack([scored + 1.0, np.zeros(6)], axis=1).astype(np.float32)
    split = matrices(packed, vectors)
    assert [len(matrix) for matrix in split] == [2, 1, 3]
    assert all((matrix == [1.0, 0.0]).all() for matrix in split)


def test_packed_when_texts_have_many_lengths_then_neighbours_of_equal_length_are_one_run():
    packed = _packed(*(of_length(n) for n in (4, 4, 3, 5, 5, 5)))
    assert packed.runs() == [Run(0, 0, 2, 4), Run(8, 2, 1, 3), Run(11, 3, 3, 5)]
    assert packed.offsets.tolist() == [*range(4), *range(4), *range(3), *range(5), *range(5), *range(5)]


def _config(folder: Path, pad_id: int) -> EncoderConfig:
    write_tiny_model(folder, card())
    config = json.loads((folder / "config.json").read_text()) | {"pad_token_id": pad_id}
    return EncoderConfig.of(config, "tiny")


def test_special_ids_when_the_tokenizer_has_other_ids_then_they_are_those_it_uses(tmp_path: Path):
    config = _config(tmp_path, pad_id=7)
    tokenizer = Tokenizer(models.Unigram([("a", -1.0), ("?", -9.0), ("<b>", 0.0), ("<e>", 0.0)], unk_id=1))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<b> $A <e>", special_tokens=[("<b>", 2), ("<e>", 3)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert special_ids(tmp_path, config).tolist() == [1, 2, 3, 7]


def test_special_ids_when_the_unknown_token_is_given_by_its_name_then_its_id_is_found(tmp_path: Path):
    assert special_ids(tmp_path, _config(tmp_path, pad_id=0)).tolist() == [0, 1, 2, 3]
