"""The TLS options of the file, in Go's words: versions, cipher suites and curves, and their numbers on the wire.

Numbers are those of the IANA registry. Must never open a connection.
"""

from dataclasses import dataclass
from typing import Final

from turnstile.api.config.v1beta2 import Tls

VERSIONS: Final = {"VersionTLS12": 0x0303, "VersionTLS13": 0x0304}
_TOO_OLD: Final = ("VersionTLS10", "VersionTLS11")

CIPHER_SUITES: Final = {
    "TLS_AES_128_GCM_SHA256": 0x1301,
    "TLS_AES_256_GCM_SHA384": 0x1302,
    "TLS_CHACHA20_POLY1305_SHA256": 0x1303,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": 0xC009,
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": 0xC02B,
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": 0xC00A,
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": 0xC02C,
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": 0xCCA9,
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": 0xCCA9,
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": 0xC013,
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": 0xC02F,
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": 0xC014,
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": 0xC030,
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": 0xCCA8,
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": 0xCCA8,
}
"""Those that are secure, by name."""

CURVES: Final = {
    23: "CurveP256",
    24: "CurveP384",
    25: "CurveP521",
    29: "X25519",
    4587: "SecP256r1MLKEM768",
    4588: "X25519MLKEM768",
    4589: "SecP384r1MLKEM1024",
}
"""Those that Go knows, by number."""

SINGLE_CURVES: Final = {23: "prime256v1", 24: "secp384r1", 25: "secp521r1", 29: "X25519"}
"""OpenSSL's names of the curves that Python's ssl can be told to use; it takes one of them, and no list."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Numbers of the oldest version allowed, of the cipher suites and of the curves; empty for the defaults."""

    min_version: int = VERSIONS["VersionTLS12"]
    cipher_suites: tuple[int, ...] = ()
    curves: tuple[int, ...] = ()


DEFAULTS: Final = TlsOptions()


def parse(options: Tls) -> TlsOptions:
    """The numbers. Raises ValueError with all faults, a line each."""
    faults: list[str] = []
    version, suites, curves = 0, [], []
    try:
        version = min_version(options.min_version or "")
    except ValueError as error:
        faults.append(str(error))
    try:
        suites = cipher_suites(options.cipher_suites or [])
    except ValueError as error:
        faults.append(str(error))
    try:
        curves = curve_preferences(options.curve_preferences or [])
    except ValueError as error:
        faults.append(str(error))
    if faults:
        raise ValueError("\n".join(faults))
    return TlsOptions(version, tuple(suites), tuple(curves))


def min_version(name: str) -> int:
    """Number of a version; 1.2 for the empty name. Raises ValueError for those that are unknown or too old."""
    if not name:
        return VERSIONS["VersionTLS12"]
    if name in VERSIONS:
        return VERSIONS[name]
    what = "" if name in _TOO_OLD else f': unknown tls version "{name}"'
    raise ValueError(f"invalid minVersion{what}. Please use VersionTLS12 or VersionTLS13")


def cipher_suites(names: list[str]) -> list[int]:
    """Numbers of cipher suites. Raises ValueError for one that is unknown or insecure."""
    for name in names:
        if name not in CIPHER_SUITES:
            known = " ".join(CIPHER_SUITES)
            raise ValueError(
                f"invalid cipher suites: Cipher suite {name} not supported or doesn't exist. "
                f"Please use the secure cipher names: [{known}]"
            )
    return [CIPHER_SUITES[name] for name in names]


def curve_preferences(numbers: list[int]) -> list[int]:
    """The same numbers, if each is known and stands once. Raises ValueError otherwise."""
    for index, number in enumerate(numbers):
        if not 0 < number < 2**16:
            fault = f"curve preference {number} is out of range (must be 1-65535)"
        elif number in numbers[:index]:
            fault = f"duplicate curve preference {number}"
        elif number not in CURVES:
            fault = f"curve preference {number} is not supported by the current Go version"
        else:
            continue
        raise ValueError(f"invalid curve preferences: {fault}")
    return numbers
