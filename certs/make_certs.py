"""Makes a developer's own CA and webhook certificate, and renews them when it is run again.

    python certs/make_certs.py [--out DIR] [--new] [HOST ...]

The same code makes the certificates of an installation (`turnstile.http.certificates`); this writes files instead of a
Secret. What is still good is kept, so a CA that somebody trusts stays the same. Never touches a cluster.
"""

import argparse
import datetime as dt
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography import x509

from turnstile.api.errors import InvalidValue
from turnstile.http.certificates import BUNDLE, KEYS, LEAF, LEAF_KEY, Step, carry_out, check_hosts, plan, service_hosts

DIRECTORY = Path(__file__).parent
HOSTS = ("localhost", "127.0.0.1", "::1", *service_hosts("turnstile-webhook-service", "turnstile-system"))
_MODES = {True: 0o600, False: 0o644}

USE = """
Serve with it:
  turnstile serve --role all --tls-cert {directory}/tls.crt --tls-key {directory}/tls.key
Have an API server on this machine trust and call it:
  helm upgrade --install turnstile charts/turnstile --namespace turnstile-system --create-namespace \\
    --set webhook.url=https://127.0.0.1:9443 --set controller.enabled=false \\
    --set webhook.certs.mode=existing --set webhook.certs.secretName=unused \\
    --set webhook.certs.caBundle="$(base64 <{directory}/ca.crt | tr -d '\\n')"
"""


def read(directory: Path) -> dict[str, bytes]:
    """The files of an earlier run."""
    return {key: (directory / key).read_bytes() for key in KEYS if (directory / key).exists()}


def write(directory: Path, data: Mapping[str, bytes]) -> None:
    """Replace each file as a whole; only the owner may read a key."""
    directory.mkdir(parents=True, exist_ok=True)
    for key in KEYS:
        path = directory / key
        if key not in data:
            path.unlink(missing_ok=True)
            continue
        fresh = path.with_name(f".new-{key}")  # git ignores it like the others
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODES[key.endswith(".key")])
        with os.fdopen(descriptor, "wb") as file:
            file.write(data[key])
        fresh.replace(path)


def renewed(data: Mapping[str, bytes], now: dt.datetime, hosts: Sequence[str]) -> tuple[dict[str, bytes], list[str]]:
    """The data with all done that is due, and why each step was."""
    current, why = dict(data), []
    while (due := plan(current, now, hosts, distributed=True)).step is not Step.NOTHING:
        why.append(due.why)
        current = carry_out(due.step, current, now, hosts)
    return current, why


def describe(directory: Path, data: Mapping[str, bytes]) -> str:
    """What is in the files."""
    leaf = x509.load_pem_x509_certificate(data[LEAF])
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    authorities = x509.load_pem_x509_certificates(data[BUNDLE])
    return "\n".join(
        [
            f"{directory / BUNDLE}: CA, valid until {max(one.not_valid_after_utc for one in authorities):%Y-%m-%d}",
            f"{directory / LEAF}, {directory / LEAF_KEY}: leaf, valid until {leaf.not_valid_after_utc:%Y-%m-%d}, for",
            *(f"  {name.value}" for name in names),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Make or renew; the exit code."""
    parser = argparse.ArgumentParser(description="Make a developer's own CA and webhook certificate.")
    parser.add_argument("--out", type=Path, default=DIRECTORY, help="where the files go (default: %(default)s)")
    parser.add_argument("--new", action="store_true", help="make a new CA even if the one there is good")
    parser.add_argument("hosts", nargs="*", metavar="HOST", help="further DNS names or IP addresses of the webhook")
    options = parser.parse_args(arguments)
    hosts = tuple(dict.fromkeys((*HOSTS, *options.hosts)))
    try:
        check_hosts(hosts)
        data, why = renewed({} if options.new else read(options.out), dt.datetime.now(dt.UTC), hosts)
        if why:
            write(options.out, data)
    except (InvalidValue, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    print(f"made: {'; '.join(why)}" if why else "nothing to do: all is valid")
    print(describe(options.out, data))
    print(USE.format(directory=options.out).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
