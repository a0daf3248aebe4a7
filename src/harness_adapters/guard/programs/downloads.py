"""curl and wget: what they connect to, send and save, and how they would skip the proxy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from harness_adapters.guard.facts import (
    Connects,
    Creates,
    Evades,
    GetsPackage,
    LooksUp,
    Reads,
    SeeksSecret,
    SetsEnv,
)
from harness_adapters.guard.hosts import bare_endpoint, endpoint, is_loopback, normalise, url_endpoints
from harness_adapters.guard.hubs import changes_in
from harness_adapters.guard.machine import FROM_NETWORK, Output, Run
from harness_adapters.guard.programs.generic import add_path, split_options
from harness_adapters.guard.values import ANY

_CURL_VALUES = (
    "-o --output -d --data --data-raw --data-binary --data-urlencode --json -F --form -H --header -x "
    "--proxy -X --request -u --user -A --user-agent -e --referer -b --cookie -c --cookie-jar -T "
    "--upload-file -K --config -m --max-time --connect-timeout --retry --resolve --connect-to --noproxy "
    "--preproxy --socks5 --socks4 --socks5-hostname --socks4a --proxy1.0 --unix-socket "
    "--abstract-unix-socket --interface --dns-servers --doh-url --url --cacert --cert -E --key -w "
    "--write-out -D --dump-header -r --range --max-redirs --retry-delay -U --proxy-user --netrc-file "
    "--limit-rate --output-dir --variable --expand-url -z -t -y -Y -C -P -Q"
)
_WGET_VALUES = (
    "-O --output-document -o --output-file -P --directory-prefix -i --input-file -e --execute --header "
    "--post-data --post-file -U --user-agent -t -T --timeout --tries -a --user --password "
    "--ca-certificate -Q -w -B --base"
)


_RELEASE = re.compile(
    r"/crates/([\w-]{2,80})/\d|/([A-Za-z][\w.]{1,80}?)[-_]v?\d[\w.]{0,40}\.(?:whl|tar\.gz|tgz|crate|gem|nupkg|zip)(?:$|[?#])"
)
"""A release of a package, by its address."""


def _curl(run: Run) -> Output:
    options, operands = split_options(run.args, _CURL_VALUES)
    urls = operands + options.get("--url", []) + options.get("--expand-url", [])
    local_socket = bool(options.get("--unix-socket"))
    for socket_path in options.get("--unix-socket", []):
        add_path(run, Reads, socket_path)
        if "docker.sock" in socket_path or "containerd" in socket_path:
            run.add(Evades(run.name, "talks to the container runtime"))
    hosts = [] if local_socket else _url_hosts(run, urls)
    loopback = bool(hosts) and all(is_loopback(host) for host in hosts)
    _curl_detours(run, options, loopback=loopback or local_socket)
    for name in (
        options.get("-o", []) + options.get("--output", []) + options.get("-D", []) + options.get("--dump-header", [])
    ):
        if name != "-":
            add_path(run, Creates, name)
    sent = [
        v
        for o in ("-d", "--data", "--data-binary", "--data-urlencode", "--json", "-F", "--form")
        for v in options.get(o, [])
    ]
    for name in (
        [part for value in sent for part in re.findall(r"(?:^|=)[@<]([^;]+)", value)]
        + options.get("-T", [])
        + options.get("--upload-file", [])
    ):
        if name != "-":
            add_path(run, Reads, name)
    for name in options.get("-K", []) + options.get("--config", []):
        known = run.stdin.text if name == "-" else run.machine.files.contents.get(run.paths(name)[-1])
        ends = url_endpoints(known or "")
        for end in ends:
            run.add(Connects(run.name, end.host, end.port))
        if not ends:
            run.add(Connects(run.name, ""))
    if any(o in options for o in ("-n", "--netrc", "--netrc-optional")) or options.get("--netrc-file"):
        run.add(SeeksSecret(run.name, "netrc"))
    for header in options.get("-H", []) + options.get("--header", []):
        if header.lower().startswith("host:") and not loopback:
            end = endpoint(header.partition(":")[2].strip())
            run.add(Connects(run.name, end.host, end.port))
    return FROM_NETWORK


def _curl_detours(run: Run, options: Mapping[str, list[str]], *, loopback: bool) -> None:
    for name in ("-x", "--proxy", "--preproxy", "--socks5", "--socks4", "--socks5-hostname", "--socks4a", "--proxy1.0"):
        for value in options.get(name, []):
            end = bare_endpoint(re.sub(r"^[a-z0-9]+:/{2}", "", value))
            if loopback and is_loopback(end.host):
                run.add(Connects(run.name, end.host, end.port))
            else:
                run.add(SetsEnv(run.name, "http_proxy", value))
    for value in options.get("--noproxy", []):
        if not loopback:
            run.add(SetsEnv(run.name, "no_proxy", value or "*"))
    for name in ("--connect-to", "--resolve", "--dns-servers", "--doh-url", "--interface"):
        for value in options.get(name, []):
            last = value.split(":")[-1] if name == "--resolve" else value
            if not (loopback and is_loopback(normalise(last))):
                run.add(Evades(run.name, f"redirects the connection with {name}"))


def _url_hosts(run: Run, urls: list[str]) -> list[str]:
    """Adds a connection for each URL operand, with or without a scheme; the hosts."""
    hosts: list[str] = []
    for url in urls:
        if url.startswith("file:"):
            add_path(run, Reads, url)
            continue
        bare = re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*:[/\\]+", "", url)
        end = bare_endpoint(bare)
        run.add(Connects(run.name, end.host, end.port))
        hosts.append(end.host)
        for change in changes_in(url):
            run.add(LooksUp(run.name, change))
        released = _RELEASE.search(url)
        if released:
            run.add(GetsPackage(run.name, released[1] or released[2], True))
    return hosts


def _wget(run: Run) -> Output:
    options, operands = split_options(run.args, _WGET_VALUES)
    hosts = _url_hosts(run, operands)
    loopback = bool(hosts) and all(is_loopback(host) for host in hosts)
    if "--no-proxy" in options and not loopback:
        run.add(SetsEnv(run.name, "no_proxy", "*"))
    for setting in options.get("-e", []) + options.get("--execute", []):
        if "proxy" in setting:
            run.add(Evades(run.name, f"sets {setting}"))
    for name in options.get("-i", []) + options.get("--input-file", []):
        known = run.stdin.text if name == "-" else run.machine.files.contents.get(run.paths(name)[-1])
        ends = url_endpoints(known or "")
        for end in ends:
            run.add(Connects(run.name, end.host, end.port))
        if not ends:
            run.add(Connects(run.name, ""))
    for name in options.get("-O", []) + options.get("--output-document", []) + options.get("-o", []):
        if name != "-":
            add_path(run, Creates, name)
    for name in options.get("--post-file", []):
        add_path(run, Reads, name)
    for folder in options.get("-P", []) + options.get("--directory-prefix", []):
        add_path(run, Creates, f"{folder}/{ANY}")
    return FROM_NETWORK


HANDLERS: Mapping[str, Callable[[Run], Output]] = {"curl": _curl, "wget": _wget, "wget2": _wget}
