"""What the analysis knows about languages: which stemmer, and the function words that give a language away."""

from collections.abc import Mapping
from typing import Final

#: Stemmer (PyStemmer's name) of each language written in Latin letters; "" leaves words as they are.
LATIN_STEMMERS: Final[Mapping[str, str]] = {
    "en": "english",
    "de": "german",
    "fr": "french",
    "es": "spanish",
    "it": "italian",
    "pt": "portuguese",
    "nl": "dutch",
    "ro": "romanian",
    "tr": "turkish",
    "sv": "swedish",
    "da": "danish",
    "no": "norwegian",
    "fi": "finnish",
    "hu": "hungarian",
    "pl": "polish",
    "cs": "czech",
    "id": "indonesian",
    "vi": "",
}

#: Stemmer of every other script that has one: the script decides, as one language owns nearly all its text.
SCRIPT_STEMMERS: Final[tuple[tuple[str, str, str], ...]] = (
    ("\u0400", "\u052f", "russian"),
    ("\u0370", "\u03ff", "greek"),
    ("\u1f00", "\u1fff", "greek"),
    ("\u0600", "\u06ff", "arabic"),
    ("\u0900", "\u097f", "hindi"),
    ("\u0b80", "\u0bff", "tamil"),
    ("\u0530", "\u058f", "armenian"),
)

#: Languages whose words mean something else without their marks; nothing is stripped from them.
KEEPS_MARKS: Final = frozenset({"vi"})

#: Two-letter codes that mean one of the languages above.
ALIASES: Final[Mapping[str, str]] = {"nb": "no", "nn": "no", "in": "id", "mo": "ro", "ms": "id"}

DEFAULT_LATIN: Final = "en"

_FUNCTION_WORDS: Final[Mapping[str, str]] = {
    "en": "the of and to in is that for it as was with be by on not he his but at are this have from or had an they "
    "which you were their been has its who would there what when if can will",
    "de": "der die das und ist nicht ein eine einer eines dem den des zu von mit sich auf für im auch als wird wurde "
    "sind oder aber bei nach aus dass zum zur über wie hat haben werden kann durch",
    "fr": "le la les de des du et est une un dans que qui pour pas au aux sur par avec ce cette ces sont plus ne se il "
    "elle nous vous ou été être ont comme mais leur",
    "es": "el la los las de del y en que un una es por con para se su al lo como más pero sus le ha este esta entre "
    "cuando muy sin sobre también fue son desde hasta",
    "it": "il lo la gli le di del della dei delle e è un una in che per con non si da dal dalla nel nella al alla sono "
    "come più anche ma questo questa ha stato essere",
    "pt": "o a os as de do da dos das e é em no na nos nas um uma que para com não por se mais como mas ao foi são ou "
    "sua seu pela pelo também ser está",
    "nl": "de het een en van is dat op te in zijn met voor niet aan er om ook als dan maar bij door naar uit worden "
    "wordt werd deze dit hebben heeft kan nog wel",
    "ro": "și şi de la în a al ale cu este nu o un pe care din pentru că sau mai sunt prin fost ca se lui cel cea după "
    "aceste acest între fi",
    "tr": "ve bir bu için ile da de olarak olan daha çok gibi en ne kadar sonra var ise veya ancak her değil "
    "tarafından "
    "olduğu oldu ya ki",
    "sv": "och att det som en ett är av för den med på inte till de har om var från kan men eller vid så när sin även "
    "efter hade blev",
    "da": "og at det som en et er af for den med på ikke til de har om var fra kan men eller ved så når sin også efter "
    "havde blev der",
    "no": "og at det som en et er av for den med på ikke til de har om var fra kan men eller ved så når sin også etter "
    "hadde ble der",
    "fi": "ja on ei että se oli hän joka mutta kuin myös sen ovat tai ole ollut mukaan jotka kun jossa sekä vuonna",
    "hu": "a az és hogy nem is egy ez volt meg de csak el van vagy mint még már kell ha azt ezt között által",
    "pl": "i w na z do że się nie jest to o jak po co za od przez dla są oraz był ale jego lub przy które który która",
    "cs": "a v na se je že s z do o i k pro ve za by jako po ale jsou byl nebo jeho od podle které který která není",
    "id": "yang dan di dari untuk dengan pada ini itu adalah dalam tidak ke akan oleh sebagai juga atau dapat telah "
    "ada "
    "mereka",
    "vi": "của và là các được trong có một cho không những với người này đã về từ để khi đến tại vào cũng năm như",
}

#: Function word -> the languages that have it.
FUNCTION_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    word: tuple(language for language, words in _FUNCTION_WORDS.items() if word in words.split())
    for word in sorted({word for words in _FUNCTION_WORDS.values() for word in words.split()})
}

# Distinct words, as one letter or word of a formula or a program may stand in it a hundred times.
_MIN_DISTINCT = 4
_MIN_SHARE = 0.05
_MIN_LEAD = 1.5


def normal_code(language: str) -> str:
    """The two-letter code of a language tag (`pt-BR` -> `pt`), "" for none and for `und`."""
    code = language.replace("_", "-").split("-", 1)[0].strip().lower()
    return "" if code == "und" else ALIASES.get(code, code)


def latin_language(counts: Mapping[str, int]) -> str:
    """The language of Latin-script words, by their function words; the default when too few tell.

    `counts` maps words as they stand in the text to how often they occur. An error here costs little: a query whose
    language is not given carries the stems of every language.
    """
    votes: dict[str, int] = {}
    for word in counts:
        for language in FUNCTION_WORDS.get(word, ()):
            if len(word) > 1:
                votes[language] = votes.get(language, 0) + 1
    if not votes:
        return DEFAULT_LATIN
    best = max(votes, key=votes.__getitem__)
    enough = votes[best] >= max(_MIN_DISTINCT, len(counts) * _MIN_SHARE)
    return best if enough and votes[best] >= _MIN_LEAD * votes.get(DEFAULT_LATIN, 0) else DEFAULT_LATIN
