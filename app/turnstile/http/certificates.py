"""Issues and rotates the webhook's certificates: parses a Secret, plans the next step and creates its new data.

Never reads a clock, a file or the network: data and time are arguments. Only key generation uses the system's random
source. All state is in the Secret's data, so any leader continues where another leader stopped:

    ca.crt       bundle of the CAs that clients must trust, for `caBundle`
    ca.key       key of the signing CA, which is in the bundle
    tls.crt/key  the serving certificate (leaf)
    ca-next.crt  and ca-next.key, only while a rotation waits until the bundle is installed everywhere

A CA is replaced with overlap, one step per write, so that every leaf in use matches every bundle in use:

    stage    a next CA joins the bundle; the leaf stays
    switch   once the bundle is installed everywhere, the next CA becomes the signer and issues the leaf
    drop     a day later, when every replica has long loaded the new leaf, the old CA leaves the bundle

CA and leaf are renewed when two thirds of their life have passed. Unusable data is replaced and the reason returned;
valid data stays, so losing the CA key does not invalidate a working leaf.
"""

import datetime as dt
import enum
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from turnstile.api.errors import InvalidValue

CA_LIFE = dt.timedelta(days=3650)
LEAF_LIFE = dt.timedelta(days=365)
BACKDATE = dt.timedelta(minutes=5)
"""How far before now a certificate starts to be valid, for clients whose clock is behind."""
OVERLAP = dt.timedelta(days=1)
"""How long an old CA stays trusted after the leaf was issued by another CA."""

BUNDLE, CA_KEY = "ca.crt", "ca.key"
LEAF, LEAF_KEY = "tls.crt", "tls.key"
NEXT_CA, NEXT_CA_KEY = "ca-next.crt", "ca-next.key"
KEYS = (BUNDLE, CA_KEY, LEAF, LEAF_KEY, NEXT_CA, NEXT_CA_KEY)
"""Every key of the Secret that Turnstile manages; it leaves other keys alone."""

Data = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key as unencrypted PKCS #8 PEM."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


class Step(enum.Enum):
    """One write of the Secret."""

    NOTHING = "nothing"
    START_OVER = "start over"
    ISSUE_LEAF = "issue leaf"
    STAGE_CA = "stage CA"
    SWITCH_CA = "switch CA"
    DROP_CA = "drop CA"


@dataclass(frozen=True, slots=True)
class Plan:
    """The step that is due, the reason, and when to plan again if the Secret does not change before."""

    step: Step
    why: str
    plan_again: dt.datetime


def service_hosts(service: str, namespace: str, *, cluster_domain: str = "cluster.local") -> tuple[str, ...]:
    """The DNS names of a Service. The API server uses `<service>.<namespace>.svc`."""
    name = f"{service}.{namespace}"
    return (f"{name}.svc", f"{name}.svc.{cluster_domain}", name, service)


def check_hosts(hosts: Sequence[str]) -> None:
    """Raise InvalidValue if there is no host or a host cannot be in a certificate."""
    _general_names(hosts)


def make_ca(now: dt.datetime, *, name: str = "turnstile-ca", life: dt.timedelta = CA_LIFE) -> KeyPair:
    """A new P-256 certificate authority. Its subject is unique, so two CAs are never confused."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}-{serial & 0xFFFFFFFF:08x}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate, key)


def make_leaf(ca: KeyPair, now: dt.datetime, hosts: Sequence[str], *, life: dt.timedelta = LEAF_LIFE) -> KeyPair:
    """A new P-256 server certificate for DNS names and IP addresses, never valid for longer than its CA.

    Raises InvalidValue for a host that is neither a DNS name nor an IP address.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "turnstile-webhook")]))
        .issuer_name(ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(now - BACKDATE, ca.certificate.not_valid_before_utc))
        .not_valid_after(min(now + life, ca.certificate.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_general_names(hosts)), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), critical=False)
        .sign(ca.key, hashes.SHA256())
    )
    return KeyPair(certificate, key)


def own_certificate(now: dt.datetime, hosts: Sequence[str]) -> tuple[bytes, bytes]:
    """A certificate and its key (PEM) for a server whose clients do not verify it; its authority is thrown away."""
    leaf = make_leaf(make_ca(now), now, hosts, life=CA_LIFE)
    return leaf.certificate_pem, leaf.key_pem


def ca_bundle(data: Data) -> bytes:
    """The value for `caBundle`: every certificate of `ca.crt`, as plain PEM. Empty if there is none."""
    return _pem(_certificates(data.get(BUNDLE, b"")))


def plan(data: Data, now: dt.datetime, hosts: Sequence[str], *, distributed: bool) -> Plan:
    """The step that is due for a Secret with this data.

    `distributed`: the bundle is installed in every `caBundle`, long enough for every API server to have loaded it.
    Matters only between staging a CA and switching to it.
    """
    return _Reading(data, now, hosts).plan(distributed=distributed)


def carry_out(step: Step, data: Data, now: dt.datetime, hosts: Sequence[str]) -> dict[str, bytes]:
    """The Secret's data after the step that `plan` returned for this data. Keys outside `KEYS` stay unchanged."""
    if step is Step.NOTHING:
        return dict(data)
    reading = _Reading(data, now, hosts)
    bundle, signer, staged, leaf = reading.bundle, reading.signer, reading.staged, reading.leaf
    if step is Step.START_OVER:
        signer = make_ca(now)
        # Replicas may still serve an old leaf: its CA stays trusted until they have loaded the new leaf.
        bundle, staged = [*reading.valid(bundle), signer.certificate], None
        leaf = make_leaf(signer, now, hosts)
    elif step is Step.ISSUE_LEAF:
        leaf = make_leaf(_needed(signer, step), now, hosts)
    elif step is Step.STAGE_CA:
        staged = make_ca(now)
        bundle = [*bundle, staged.certificate]
    elif step is Step.SWITCH_CA:
        signer, staged = _needed(staged, step), None
        leaf = make_leaf(signer, now, hosts)
    elif step is Step.DROP_CA:
        staged = None
        bundle = [_needed(signer, step).certificate]
    return {key: value for key, value in data.items() if key not in KEYS} | _encode(bundle, signer, leaf, staged)


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why a certificate must be replaced, and whether it is usable until then."""

    why: str
    usable: bool = False


class _Reading:
    """The parsed data of a Secret and its faults at a given time."""

    def __init__(self, data: Data, now: dt.datetime, hosts: Sequence[str]) -> None:
        self.now = now
        self.names = frozenset(_general_names(hosts))
        self.bundle = _certificates(data.get(BUNDLE, b""))
        self.signer = self._signer(data)
        self.staged = _pair(data.get(NEXT_CA, b""), data.get(NEXT_CA_KEY, b""))
        if self.staged is not None and (self.staged.certificate not in self.bundle or self._ca_fault(self.staged)):
            self.staged = None
        self.leaf = _pair(data.get(LEAF, b""), data.get(LEAF_KEY, b""))
        self.litter = self.staged is None and (NEXT_CA in data or NEXT_CA_KEY in data)
        self.empty = not any(data.get(key) for key in KEYS)

    def valid(self, certificates: Sequence[x509.Certificate]) -> list[x509.Certificate]:
        """The certificates that are valid now: begun and not expired."""
        return [each for each in certificates if each.not_valid_before_utc <= self.now < each.not_valid_after_utc]

    def plan(self, *, distributed: bool) -> Plan:
        leaf, ca = self._leaf_fault(), self._ca_fault(self.signer)
        serves = leaf is None or leaf.usable
        signs = ca is None or ca.usable
        if self.staged is not None:
            if distributed:
                return self._due(Step.SWITCH_CA, "every API server trusts the next CA")
            if leaf is not None and signs:
                return self._due(Step.ISSUE_LEAF, leaf.why)
            if leaf is not None and not serves:
                return self._due(Step.SWITCH_CA, leaf.why)
            return Plan(Step.NOTHING, "not every API server trusts the next CA yet", self._next_plan())
        if ca is not None and serves:
            return self._due(Step.STAGE_CA, ca.why)
        if ca is not None and not signs:
            return self._due(Step.START_OVER, "there are no certificates yet" if self.empty else ca.why)
        if leaf is not None:
            return self._due(Step.ISSUE_LEAF, leaf.why)
        old = [each for each in self.bundle if self.signer is None or each != self.signer.certificate]
        if len(old) > len(self.valid(old)):
            return self._due(Step.DROP_CA, "a CA in the bundle has expired or is not valid yet")
        if old and self._leaf_made() + OVERLAP <= self.now:
            return self._due(Step.DROP_CA, "no replica serves a certificate of the old CA any more")
        if self.litter and not old:
            return self._due(Step.DROP_CA, "the Secret has keys of an abandoned rotation")
        return Plan(Step.NOTHING, "all certificates are valid", self._next_plan(dropping=bool(old)))

    def _due(self, step: Step, why: str) -> Plan:
        return Plan(step, why, self.now)

    def _signer(self, data: Data) -> KeyPair | None:
        key = _private_key(data.get(CA_KEY, b""))
        if key is None:
            return None
        mine = (each for each in self.bundle if _is_ca(each) and each.public_key() == key.public_key())
        return next((KeyPair(each, key) for each in mine), None)

    def _ca_fault(self, ca: KeyPair | None) -> _Fault | None:
        if ca is None:
            return _Fault("the Secret has no CA with a matching key")
        return _time_fault("CA", ca.certificate, self.now)

    def _leaf_fault(self) -> _Fault | None:
        if self.leaf is None:
            return _Fault("the Secret has no serving certificate with a matching key")
        certificate = self.leaf.certificate
        if not any(_issued(certificate, by=ca) for ca in self.valid(self.bundle)):
            return _Fault("no CA in the bundle issued the serving certificate")
        fault = _time_fault("serving certificate", certificate, self.now)
        if fault is None and _names(certificate) != self.names:
            return _Fault("the serving certificate is for other hosts", usable=True)
        return fault

    def _leaf_made(self) -> dt.datetime:
        assert self.leaf is not None
        return self.leaf.certificate.not_valid_before_utc + BACKDATE

    def _next_plan(self, *, dropping: bool = False) -> dt.datetime:
        pairs = [pair for pair in (self.leaf, self.signer) if pair is not None]
        times = [_renewal(pair.certificate) for pair in pairs]
        if dropping:
            times.append(self._leaf_made() + OVERLAP)
        return min((time for time in times if time > self.now), default=self.now + OVERLAP)


def _time_fault(what: str, certificate: x509.Certificate, now: dt.datetime) -> _Fault | None:
    if now < certificate.not_valid_before_utc:
        return _Fault(f"the {what} is not valid yet")
    if now >= certificate.not_valid_after_utc:
        return _Fault(f"the {what} has expired")
    if now >= _renewal(certificate):
        return _Fault(f"two thirds of the lifetime of the {what} have passed", usable=True)
    return None


def _renewal(certificate: x509.Certificate) -> dt.datetime:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin + (end - begin) * 2 / 3


def _issued(certificate: x509.Certificate, *, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    if not hosts:
        raise InvalidValue("hosts", list(hosts), "name at least one DNS name or IP address of the webhook")
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not _is_dns_name(host):
                raise InvalidValue("hosts", host, "use a DNS name or an IP address without port or scheme") from None
            names.append(x509.DNSName(host.lower()))
    return names


def _is_dns_name(host: str) -> bool:
    labels = host.removeprefix("*.").split(".")
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789-")
    return len(host) <= 253 and all(
        0 < len(label) <= 63 and set(label.lower()) <= allowed and label[0] != "-" != label[-1] for label in labels
    )


def _names(certificate: x509.Certificate) -> frozenset[x509.GeneralName]:
    try:
        return frozenset(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(pem)
        for one in found:
            _ = one.extensions, one.public_key()  # parsed lazily: a malformed certificate must fail here
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return []
    return list(dict.fromkeys(found))


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # not PEM or not a key; encrypted; unsupported
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _pair(certificate_pem: bytes, key_pem: bytes) -> KeyPair | None:
    certificates, key = _certificates(certificate_pem), _private_key(key_pem)
    if not certificates or key is None or certificates[0].public_key() != key.public_key():
        return None
    return KeyPair(certificates[0], key)


def _pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


def _needed(pair: KeyPair | None, step: Step) -> KeyPair:
    if pair is None:
        raise InvalidValue("step", step.value, "plan again: it does not fit this data")
    return pair


def _encode(
    bundle: Sequence[x509.Certificate], signer: KeyPair | None, leaf: KeyPair | None, staged: KeyPair | None
) -> dict[str, bytes]:
    data = {BUNDLE: _pem(bundle)}
    if signer is not None:
        data[CA_KEY] = signer.key_pem
    if leaf is not None:
        data |= {LEAF: leaf.certificate_pem, LEAF_KEY: leaf.key_pem}
    if staged is not None:
        data |= {NEXT_CA: staged.certificate_pem, NEXT_CA_KEY: staged.key_pem}
    return data
