"""Writers that turn the Markdown sources of the example company into PDF and DOCX files."""
