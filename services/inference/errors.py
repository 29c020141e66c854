"""The failures of models and inference, each with its declared reason."""

from services.common.errors import Reason, ServiceError


class InferenceFailed(ServiceError):
    """The model failed on one item, or gave no finite value for it."""

    reason = Reason.INFERENCE_FAILED


class DeviceLost(ServiceError):
    """The accelerator is gone for this process: nothing that runs on it can succeed any more."""

    reason = Reason.DEVICE_LOST


class DeadlineUnreachable(ServiceError):
    """Refused before any work: the work alone would take longer than what is left until the deadline."""

    reason = Reason.DEADLINE_UNREACHABLE


class ShuttingDown(ServiceError):
    reason = Reason.SHUTTING_DOWN


class EmptyInput(ServiceError):
    """A text holds nothing but white space; a vector of nothing would match everything a little."""

    reason = Reason.EMPTY_INPUT


class InputTooLong(ServiceError):
    reason = Reason.INPUT_TOO_LONG


class ModelInvalid(ServiceError):
    """The files of a model do not fit its card, or compute nonsense."""

    reason = Reason.MODEL_INVALID


class ModelNotAvailable(ServiceError):
    reason = Reason.MODEL_NOT_AVAILABLE


class ModelNotLoaded(ServiceError):
    """The model is installed, and this server loads only what it is told to."""

    reason = Reason.MODEL_NOT_LOADED


class ModelLimit(ServiceError):
    """As many models are loaded to stay as the server may hold."""

    reason = Reason.MODEL_LIMIT


class ModelRequired(ServiceError):
    """The server cannot do without the model."""

    reason = Reason.MODEL_REQUIRED


class WrongModelKind(ServiceError):
    reason = Reason.WRONG_MODEL_KIND


class ExtraNotInstalled(ServiceError):
    """A feature needs an optional dependency; the message names the extra to install."""

    reason = Reason.EXTRA_NOT_INSTALLED
