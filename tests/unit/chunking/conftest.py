"""A real tokenizer, made in a moment: word pieces over letters, digits and common syllables."""

import string

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing


@pytest.fixture(scope="session")
def tokenizer_path(tmp_path_factory):
    letters = string.ascii_lowercase + string.digits
    pieces = ["[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{c}" for c in letters), *string.punctuation, "。", "，"]
    pieces += ["the", "word", "para", "##graph", "##ing", "##er", "中", "文", "字"]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    tokenizer.enable_truncation(32)  # as published files do; counting must not obey it
    path = tmp_path_factory.mktemp("model") / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)
