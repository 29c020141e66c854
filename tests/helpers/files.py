"""Files of several formats, made when a test needs them."""

import io
import zipfile

import docx
import pymupdf


def docx_file(*paragraphs: str, heading: str = "Travel") -> bytes:
    document = docx.Document()
    document.add_heading(heading, level=1)
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def pdf_file(*pages: str, password: str = "") -> bytes:
    document = pymupdf.open()
    for text in pages:
        document.new_page().insert_textbox(pymupdf.Rect(60, 60, 540, 780), text, fontsize=11)
    if password:
        return document.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw=password, owner_pw=password + "!")
    return document.tobytes()


def html_file(title: str, *paragraphs: str) -> bytes:
    body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    head = f"<!doctype html><html><head><title>{title}</title></head>"
    return f"{head}<body><main><h1>{title}</h1>{body}</main></body></html>".encode()


def zip_file() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("notes.txt", "an archive, not a document")
    return out.getvalue()
