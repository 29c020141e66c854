"""Documents to blocks: one small module a format, each imported only when a document of it comes."""

from services.ingestor.parsing.metadata import merge_metadata
from services.ingestor.parsing.parser import ParsedSource, ParseOptions, Parser
from services.ingestor.parsing.placement import place
from services.ingestor.parsing.source import open_source
from services.ingestor.parsing.unlocking import unlock

__all__ = ["ParseOptions", "ParsedSource", "Parser", "merge_metadata", "open_source", "place", "unlock"]
