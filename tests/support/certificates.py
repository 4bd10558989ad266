"""Certificates of an authority that a test makes, by the command ``openssl``."""

import shutil
import subprocess
from pathlib import Path

from segmentlog.store.ha import Tls

MISSING = None if shutil.which("openssl") else "certificates need the command openssl"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._run("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "30")

    def sign(self, name: str, *, address: str = "127.0.0.1") -> Tls:
        names = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{address}")
        self._run("req", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", *names)
        signer = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-copy_extensions", "copy")
        self._run("x509", "-req", "-in", f"{name}.csr", *signer, "-out", f"{name}.pem")
        certificate, key, authority = (str(self._folder / file) for file in (f"{name}.pem", f"{name}.key", "ca.pem"))
        return Tls(certificate=certificate, key=key, authority=authority)

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)
