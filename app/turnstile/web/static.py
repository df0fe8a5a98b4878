"""The files that pages need: one stylesheet, one script, a font. Nothing is fetched from elsewhere."""

import hashlib
import mimetypes
import re
from pathlib import Path
from typing import Final

from starlette.responses import Response

FILES: Final = Path(__file__).with_name("files")
SERVED: Final = frozenset({".css", ".js", ".woff2", ".svg"})
_TYPES: Final = {".woff2": "font/woff2", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_ADDRESS: Final = re.compile(rb'url\("([^"]+)"\)')
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class Static:
    """The files, held in memory. Each has a path of its own that changes with its content, to be cached for ever."""

    def __init__(self) -> None:
        self._files = {
            file.relative_to(FILES).as_posix(): file.read_bytes() for file in FILES.rglob("*") if file.suffix in SERVED
        }
        self._versions: dict[str, str] = {}
        for name in sorted(self._files, key=lambda name: name.endswith(".css")):  # stylesheets name other files
            if name.endswith(".css"):
                self._files[name] = _ADDRESS.sub(self._versioned, self._files[name])
            self._versions[name] = hashlib.sha256(self._files[name]).hexdigest()[:8]

    def _versioned(self, found: re.Match[bytes]) -> bytes:
        """An address in a stylesheet as pages write it, so that a browser that has the file does not ask again."""
        return b'url("%b?%b")' % (found[1], self._versions[found[1].decode()].encode())

    def path(self, name: str) -> str:
        """The path of a file."""
        return f"/static/{name}?{self._versions[name]}"

    def answer(self, name: str, version: str) -> Response:
        """The file, or that there is none."""
        data = self._files.get(name)
        if data is None:
            return Response("no such file\n", 404, media_type="text/plain")
        suffix = Path(name).suffix
        kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0]
        cached = _FOR_EVER if version == self._versions[name] else "no-cache"
        return Response(data, media_type=kind, headers={"cache-control": cached})
