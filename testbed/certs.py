"""Keys and certificates of the bed's control plane. All keys are P-256; nothing outlives the temporary directory."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = dt.timedelta(days=7)


class Authority:
    """A certificate authority that signs for the API server and its clients; files go to `directory`."""

    def __init__(self, directory: Path, *, name: str = "testbed-ca") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(sign_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate_file = directory / "ca.crt"
        self.key_file = directory / "ca.key"
        self.certificate_file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(self.key_file, self._key)

    def server(self, file_name: str, *, hosts: Sequence[str]) -> tuple[Path, Path]:
        """A serving certificate for names and addresses; returns the certificate and key files."""
        return self._issue(file_name, hosts[0], (), hosts=hosts)

    def client(self, file_name: str, *, user: str, groups: Sequence[str] = ()) -> tuple[Path, Path]:
        """A client certificate; Kubernetes takes the common name for the user, the organizations for the groups."""
        return self._issue(file_name, user, groups, hosts=())

    def _issue(
        self, file_name: str, common_name: str, organizations: Sequence[str], *, hosts: Sequence[str]
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(subject, self._name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(h) for h in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        certificate_file = self._directory / f"{file_name}.crt"
        key_file = self._directory / f"{file_name}.key"
        certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(key_file, key)
        return certificate_file, key_file


def service_account_keys(directory: Path) -> tuple[Path, Path]:
    """The key pair that signs and checks service account tokens; returns (private, public) files."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = directory / "sa.key", directory / "sa.pub"
    _write_key(private, key)
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + _LIFE)
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
