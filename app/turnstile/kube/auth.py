"""Finds the API server and Turnstile's credentials: in the pod's service account or in kubeconfig files.

The plain cases (service account; kubeconfig with client certificate, token, token file, user and password) are read
here, because kubernetes-asyncio imports every model of Kubernetes: 0.6 to 1.2 s of CPU and 60 to 100 MiB. That
library is imported only for a user with an exec plugin or an auth provider (OIDC, GCP), and only to obtain the
credentials.
Never reads or sets the library's global configuration, and never logs a secret.
"""

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from turnstile.api.errors import ConnectionLost, InvalidValue

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_AGE = 60.0
"""Seconds after which a token file is read again: the kubelet replaces it well before the old token expires."""
PLUGIN_DEADLINE = 30.0
"""Seconds a credential plugin or an identity provider may take."""

Plain = dict[str, Any]


class Credentials(Protocol):
    """The value of the Authorization header, and how to renew it."""

    def authorization(self) -> str:
        """The header's value; empty for no header (with a client certificate)."""
        ...

    async def refresh(self, context: ssl.SSLContext | None) -> bool:
        """Read the credentials again after the server refused them; True if the TLS identity may have changed."""
        ...


@dataclass(slots=True)
class Access:
    """One API server and one identity: all that a transport needs.

    `server` has no trailing slash; `tls` is None for plain http; `server_name` replaces the host name in certificate
    verification; `headers` are sent with every request (impersonation).
    """

    server: str
    tls: ssl.SSLContext | None
    credentials: Credentials
    server_name: str | None = None
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Fixed:
    """Static credentials: a token, user and password, or a client certificate in files.

    `certificate` is (certificate file, key file); both are read again after a 401, as they may have been renewed.
    """

    def __init__(self, authorization: str = "", certificate: tuple[str, str] | None = None) -> None:
        self._authorization = authorization
        self._certificate = certificate

    def authorization(self) -> str:
        """As `Credentials`."""
        return self._authorization

    async def refresh(self, context: ssl.SSLContext | None) -> bool:
        """As `Credentials`."""
        if self._certificate is None or context is None:
            return False
        context.load_cert_chain(*self._certificate)
        return True


class TokenFile:
    """A bearer token in a file that, say, the kubelet renews: read again every minute, and at once after a 401."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic, max_age: float = TOKEN_AGE) -> None:
        self._path = path
        self._clock = clock
        self._max_age = max_age
        self._value = ""
        self._read_at = 0.0
        self._read()

    def authorization(self) -> str:
        """As `Credentials`. While the file cannot be read, the last good token stays in use."""
        if self._clock() - self._read_at >= self._max_age:
            self._try_read()
        return self._value

    async def refresh(self, context: ssl.SSLContext | None) -> bool:
        """As `Credentials`."""
        self._try_read()
        return False

    def _try_read(self) -> None:
        try:
            self._read()
        except (OSError, InvalidValue):
            # The file is being replaced; read it again after `max_age`.
            self._read_at = self._clock()

    def _read(self) -> None:
        token = self._path.read_text().strip()
        if not token:
            raise InvalidValue(str(self._path), token, "the token file is empty: mount a service account token there")
        self._value, self._read_at = f"Bearer {token}", self._clock()


class Plugin:
    """Credentials from an exec plugin or an auth provider, obtained with kubernetes-asyncio."""

    def __init__(self, config: Plain, context: str) -> None:
        self._config = config
        self._context = context
        self._authorization = ""
        self._has_certificate = False

    def authorization(self) -> str:
        """As `Credentials`."""
        return self._authorization

    async def refresh(self, context: ssl.SSLContext | None) -> bool:
        """As `Credentials`. Raises ConnectionLost if the plugin or the identity provider fails, and InvalidValue where
        kubernetes-asyncio is not installed, as in the image."""
        try:
            from kubernetes_asyncio import client, config  # slow and large, needed for these users only
        except ImportError:
            raise InvalidValue(
                "kubeconfig",
                self._context,
                "a program has to be asked for the credentials of this context, for which the package"
                " kubernetes-asyncio is needed. The image is without it: install Turnstile with pip, uv or pipx, or use"
                " a context with a token or a certificate",
            ) from None

        configuration = type.__call__(client.Configuration)  # bypasses the metaclass, which copies the global default
        try:
            # The library reads a plugin's stdout to its end before stderr: a plugin that fills the stderr pipe hangs.
            async with asyncio.timeout(PLUGIN_DEADLINE):
                await config.load_kube_config_from_dict(
                    self._config, context=self._context, client_configuration=configuration
                )
        except Exception as error:
            raise ConnectionLost(f"kubeconfig: credentials of context {self._context!r}: {error!r}") from error
        self._authorization = str(configuration.api_key.get("BearerToken", ""))
        if configuration.cert_file and configuration.key_file and context is not None:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
            return True
        return False


async def connect(kubeconfig: str | None = None, context: str | None = None) -> Access:
    """Find the API server and the identity.

    In the usual order of controllers: `kubeconfig`, the files in `$KUBECONFIG`, the pod's service account,
    `~/.kube/config`. Raises InvalidValue naming what is missing or malformed.
    """
    paths = kubeconfig or os.environ.get("KUBECONFIG", "")
    if not paths:
        if in_cluster(os.environ):
            return service_account(os.environ)
        paths = str(Path.home() / ".kube" / "config")
    return await from_kubeconfig(merge(paths.split(os.pathsep)), context)


def in_cluster(environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> bool:
    """Whether this process runs in a pod that has a service account."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST")) and (directory / "token").is_file()


def service_account(environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> Access:
    """Access as the pod's service account."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT") or "443"
    authority = directory / "ca.crt"
    if not authority.is_file():
        raise InvalidValue(str(authority), "", "no such file: mount the service account's ca.crt")
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tls=_tls(authority.read_text()),
        credentials=TokenFile(directory / "token"),
    )


def merge(names: list[str]) -> Plain:
    """Merge kubeconfig files as kubectl does: the first entry of a name wins. Relative paths become absolute.

    Missing files are skipped. Raises InvalidValue if all are missing or a file is not a kubeconfig.
    """
    merged: Plain = {"clusters": [], "users": [], "contexts": [], "current-context": ""}
    found = [path for path in (Path(name).expanduser() for name in names if name) if path.is_file()]
    if not found:
        raise InvalidValue("kubeconfig", os.pathsep.join(names), "no such file: give --kubeconfig or set KUBECONFIG")
    for path in found:
        try:
            config = yaml.safe_load(path.read_text()) or {}
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise InvalidValue("kubeconfig", str(path), f"not YAML: {error}") from None
        if not isinstance(config, dict):
            raise InvalidValue("kubeconfig", str(path), "not a mapping: expected kind: Config")
        merged["current-context"] = merged["current-context"] or config.get("current-context") or ""
        for section in ("clusters", "users", "contexts"):
            known = {entry["name"] for entry in merged[section]}
            for entry in config.get(section) or []:
                if not isinstance(entry, dict) or "name" not in entry:
                    raise InvalidValue(f"kubeconfig {path}: {section}", entry, "every entry needs a name")
                if entry["name"] not in known:
                    merged[section].append(_absolute(entry, path.absolute().parent))
    return merged


def _absolute(entry: Plain, directory: Path) -> Plain:
    """The entry with its file names made absolute."""
    inner: Plain
    for inner in (entry.get("cluster") or {}, entry.get("user") or {}):
        for name in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
            if inner.get(name):
                inner[name] = str(directory / inner[name])
        command = (inner.get("exec") or {}).get("command", "")
        if "/" in command:
            inner["exec"]["command"] = str(directory / command)
    return entry


async def from_kubeconfig(config: Plain, context: str | None = None) -> Access:
    """Access by one context of a merged kubeconfig, by default the current context."""
    chosen = context or config["current-context"]
    server, cluster = server_of(config, chosen)
    entry = _named(config, "contexts", chosen).get("context") or {}
    user = (_named(config, "users", entry["user"]).get("user") or {}) if entry.get("user") else {}
    tls = None
    if server.startswith("https://"):
        tls = _tls(
            _text(cluster, "certificate-authority"), verify=not cluster.get("insecure-skip-tls-verify"), user=user
        )
    access = Access(
        server=server,
        tls=tls,
        credentials=await _credentials(config, chosen, user, tls),
        server_name=cluster.get("tls-server-name") or None,
        proxy=proxy_of(server, cluster),
        headers=_impersonation(user),
    )
    if access.proxy and not access.proxy.startswith(("http://", "https://")):
        raise InvalidValue("kubeconfig: proxy-url", access.proxy, "only http and https proxies are supported")
    return access


def server_of(config: Plain, context: str) -> tuple[str, Plain]:
    """The URL of the API server of a context, and the entry of its cluster. Raises InvalidValue."""
    if not context:
        raise InvalidValue(
            "kubeconfig: current-context", "", "set one with kubectl config use-context, or give --context"
        )
    entry = _named(config, "contexts", context).get("context") or {}
    cluster: Plain = _named(config, "clusters", entry.get("cluster", "")).get("cluster") or {}
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise InvalidValue(
            f"kubeconfig: server of cluster {entry.get('cluster')!r}", server, "expected an https:// URL"
        )
    return server, cluster


def proxy_of(server: str, cluster: Plain) -> str | None:
    """The URL of the proxy on the way to an API server: that of the kubeconfig, or of the environment."""
    return cluster.get("proxy-url") or _environment_proxy(server)


async def _credentials(config: Plain, context: str, user: Plain, tls: ssl.SSLContext | None) -> Credentials:
    if user.get("exec") or user.get("auth-provider"):
        plugin = Plugin(config, context)
        await plugin.refresh(tls)
        return plugin
    if user.get("tokenFile"):
        return TokenFile(Path(user["tokenFile"]))
    if user.get("token"):
        return Fixed(f"Bearer {user['token']}")
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}"
        return Fixed("Basic " + base64.b64encode(pair.encode()).decode())
    if user.get("client-certificate") and user.get("client-key") and not user.get("client-certificate-data"):
        return Fixed(certificate=(user["client-certificate"], user["client-key"]))
    return Fixed()


def _impersonation(user: Plain) -> tuple[tuple[str, str], ...]:
    """Headers for `as`, `as-uid`, `as-groups` and `as-user-extra`."""
    headers: list[tuple[str, str]] = []
    if user.get("as"):
        headers.append(("Impersonate-User", str(user["as"])))
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", str(user["as-uid"])))
    headers += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or []]
    for name, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{urllib.parse.quote(name)}", str(value)) for value in values]
    return tuple(headers)


def _named(config: Plain, section: str, name: str) -> Plain:
    for entry in config[section]:
        if entry["name"] == name:
            return dict(entry)
    names = ", ".join(sorted(str(entry["name"]) for entry in config[section])) or "none"
    raise InvalidValue(f"kubeconfig: {section}", name, f"no such entry; there are: {names}")


def _text(entry: Plain, name: str) -> str:
    """The decoded base64 of `name-data`, else the contents of the file `name`; empty if neither is set."""
    data = entry.get(f"{name}-data")
    try:
        if data:
            return base64.b64decode(data, validate=True).decode()
        return Path(entry[name]).read_text() if entry.get(name) else ""
    except (binascii.Error, UnicodeDecodeError):
        raise InvalidValue(f"kubeconfig: {name}-data", "…", "not base64 of PEM text") from None
    except OSError as error:
        raise InvalidValue(f"kubeconfig: {name}", entry[name], f"cannot be read: {error.strerror}") from None


def _tls(authority: str, *, verify: bool = True, user: Plain | None = None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=authority or None)
    except ssl.SSLError:
        raise InvalidValue("certificate-authority", "…", "holds no PEM certificate") from None
    # Python 3.13 rejects CAs without a key identifier, which some clusters have and Go accepts.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _text(user or {}, "client-certificate"), _text(user or {}, "client-key")
    if bool(certificate) != bool(key):
        raise InvalidValue("kubeconfig: client-certificate", "…", "client-certificate and client-key come as a pair")
    if certificate:
        try:
            load_pair(context, certificate, key)
        except ssl.SSLError as error:
            raise InvalidValue("kubeconfig: client-certificate", "…", f"no usable PEM pair: {error.reason}") from None
    return context


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a client certificate and its key (PEM). Raises ssl.SSLError."""
    # The ssl module loads a key pair from files only; these are readable by this user only and deleted after.
    with tempfile.TemporaryDirectory(prefix="turnstile-") as directory:
        pair = Path(directory) / "certificate.pem", Path(directory) / "key.pem"
        pair[0].write_text(certificate)
        pair[1].touch(mode=0o600)
        pair[1].write_text(key)
        context.load_cert_chain(*pair)


def _environment_proxy(server: str) -> str | None:
    """The proxy that the environment sets for the server, read once; never for loopback, like Go's clients."""
    url = urllib.parse.urlsplit(server)
    host = url.hostname or ""
    if host == "localhost" or host == "::1" or host.startswith("127.") or urllib.request.proxy_bypass(url.netloc):
        return None
    return urllib.request.getproxies().get(url.scheme)
