"""What the reranker refuses on its own account."""

from services.common.errors import Reason, ServiceError
from services.inference.cards import ModelCard


class LanguageNotSupported(ServiceError):
    """The caller wants a model that claims the query's language, and the card does not."""

    reason = Reason.LANGUAGE_NOT_SUPPORTED

    @classmethod
    def by(cls, card: ModelCard, language: str) -> "LanguageNotSupported":
        claimed = ", ".join(card.languages)
        return cls(
            f"model {card.name!r} is not made for queries in {language!r}, only in {claimed}: name another model, or "
            "send the call without require_language",
            metadata={"model": card.name, "language": language, "allowed": claimed},
        )
