"""Clients of all kinds, tunnels and routes: what they connect to, and what goes around the proxy by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise

from harness_adapters.guard.facts import (
    Connects,
    Creates,
    Deletes,
    Evades,
    Reads,
)
from harness_adapters.guard.hosts import SCP_ADDRESS, bare_endpoint, endpoint, looks_like_host, normalise, url_endpoints
from harness_adapters.guard.machine import DATA, FROM_NETWORK, Output, Run
from harness_adapters.guard.programs.generic import (
    add_path,
    connect_urls,
    mention_files,
    mention_input,
    mention_paths,
    split_options,
    statement_files,
)
from harness_adapters.guard.values import ANY, names

_CONNECTION_HOST = re.compile(r"(?:^|\s)host(?:addr)?\s*=\s*'?([^\s',]+)")
"""A host in a connection string of key words and values."""


def _client(run: Run) -> Output:
    """Clients whose operands are hosts, `user@host`, `host:path` or URLs."""
    options, operands = split_options(
        run.args,
        "-d -max-time --max-time -connect-timeout -proto -import-path -p -P -l -i -F -o -c -e -h -H --host -u -U -t -w "
        "-s -q -J -L -R -D -W -x -T -n -m --port --timeout --user",
    )
    hosts = options.get("--host", [])
    if run.name in ("psql", "mysql", "redis-cli", "mongosh", "mongo", "mysqldump", "pg_dump"):
        hosts += options.get("-h", []) + [o for o in operands if "://" in o]
        hosts += [host for arg in run.args for host in _CONNECTION_HOST.findall(arg)]
        operands = []
        _statements(run)
    if run.name == "ssh" and any(o in options for o in ("-D", "-L", "-R", "-w", "-W")):
        run.add(Evades(run.name, "opens a tunnel"))
    if run.name in ("dig", "nslookup", "host", "drill", "kdig"):
        operands = [o.lstrip("@") for o in operands if not o.startswith("+") and not re.fullmatch(r"[A-Z]{1,6}", o)]
    elif run.name in ("ssh", "nc", "ncat", "netcat", "telnet", "ping", "mosh"):
        port = operands[1] if len(operands) > 1 and operands[1].isdigit() else ""
        if not operands and ("-l" in options or "-lk" in options):
            return DATA
        for operand in operands[:1]:
            end = endpoint(operand.partition("://")[2] or operand)
            run.add(Connects(run.name, end.host, port or end.port))
        return FROM_NETWORK
    if run.name == "grpcurl":
        operands = operands[:1]
    if run.name == "getent":
        operands = operands[1:] if operands[:1] in (["hosts"], ["ahosts"], ["ahostsv4"], ["ahostsv6"]) else []
    for operand in [*operands, *hosts]:
        if run.name in ("http", "https", "xh") and operand.startswith(":"):
            continue
        if operand.startswith(("/", "./", "~")) and "://" not in operand:
            add_path(run, Reads, operand)
            continue
        ends = url_endpoints(operand) or [bare_endpoint(operand)]
        for end in ends:
            run.add(Connects(run.name, end.host, end.port))
    return FROM_NETWORK


def _statements(run: Run) -> None:
    """What a data base is told, as arguments, as input or in a file: the server reads and writes files, too."""
    mention_paths(run)
    statement_files(run, "\n".join([*run.args, run.stdin.text]))
    mention_input(run)
    for name in (after for before, after in pairwise(run.args) if before in ("-f", "--file")):
        add_path(run, Reads, name)
        mention_files(run, [name])


def _copier(run: Run) -> Output:
    """`scp`, `rsync`, `sftp`, `rclone`: remote operands connect, local ones are read or written."""
    _, operands = split_options(run.args, "-e -P -i -o -F -p --exclude --include --rsh")
    for i, operand in enumerate(operands):
        remote = SCP_ADDRESS.match(operand) or re.match(r"^([\w.-]+)::?(?!\\)", operand)
        if "://" in operand:
            connect_urls(run, [operand])
        elif remote and not operand.startswith(("/", ".")):
            run.add(Connects(run.name, normalise(remote[1])))
        elif i == len(operands) - 1 and len(operands) > 1:
            add_path(run, Creates, operand)
            for source in operands[:-1]:
                name = source.rstrip("/").rpartition("/")[2]
                add_path(run, Creates, f"{operand.rstrip('/')}/{ANY if source.endswith('/') else name}")
                inside = operand if source.endswith("/") else f"{operand.rstrip('/')}/{name}"
                for old in run.paths(source) if not SCP_ADDRESS.match(source) else ():
                    run.machine.copied(run.name, old, run.paths(inside)[-1])
        else:
            add_path(run, Deletes if "--remove-source-files" in run.args else Reads, operand, deep=True)
    return DATA


def _any_url(run: Run) -> Output:
    """Browsers, load generators, tunnels …: any host-like operand."""
    found = connect_urls(run, run.args)
    if run.name == "openssl":
        for option, value in pairwise(run.args):
            if option in ("-in", "-inkey", "-CAfile", "-CA", "-CAkey", "-key", "-cert", "-config", "-certfile"):
                add_path(run, Reads, value)
            elif option in ("-out", "-keyout", "-writerand"):
                add_path(run, Creates, value)
    for arg in run.args:
        if run.name != "openssl" and not arg.startswith("-") and "://" not in arg and looks_like_host(arg):
            end = bare_endpoint(arg)
            run.add(Connects(run.name, end.host, end.port))
            found = True
    for i, arg in enumerate(run.args):
        if arg in ("-connect", "-host", "-proxy") and i + 1 < len(run.args):
            end = endpoint(run.args[i + 1])
            run.add(Connects(run.name, end.host, end.port))
            found = True
        pair = re.match(r"^(?:TCP|TCP4|TCP6|UDP|OPENSSL|SSL|SOCKS4A?|PROXY)[\w-]*:([^:,]+):?(\w*)", arg, re.IGNORECASE)
        if pair and "listen" not in arg.lower():
            run.add(Connects(run.name, normalise(pair[1]), pair[2] if pair[2].isdigit() else ""))
            found = True
    return FROM_NETWORK if found else DATA


def _mail(run: Run) -> Output:
    """`mail`, `sendmail` …: what is sent goes to the host of its address."""
    for arg in run.args:
        _, at, host = arg.rpartition("@")
        if at and looks_like_host(host):
            run.add(Connects(run.name, normalise(host)))
    return DATA


def _tunnel(run: Run) -> Output:
    run.add(Evades(run.name, f"starts {run.name}"))
    connect_urls(run, run.args)
    return DATA


def _routes(run: Run) -> Output:
    """`ip`, `iptables`, `nmcli` …: showing is fine, changing is a way around."""
    shows = {
        "show",
        "list",
        "-L",
        "-S",
        "a",
        "addr",
        "address",
        "link",
        "r",
        "route",
        "-n",
        "-4",
        "-6",
        "-s",
        "-br",
        "-brief",
        "-c",
        "-color",
        "-a",
        "-nL",
        "-j",
    }
    if any(arg not in shows and not arg.startswith("dev") for arg in run.args):
        run.add(Evades(run.name, "changes the network's set-up"))
    return DATA


HANDLERS: Mapping[str, Callable[[Run], Output]] = {
    **dict.fromkeys(
        names(
            "nc ncat netcat telnet ping ping6 traceroute tracepath mtr dig nslookup host drill kdig whois ssh "
            "mosh ftp lftp tftp sftp psql mysql redis-cli mongosh mongo mysqldump pg_dump nmap arp-scan http https "
            "xh httpie aria2c axel lynx links elinks w3m websocat wscat grpcurl getent"
        ),
        _client,
    ),
    **dict.fromkeys(("scp", "rsync"), _copier),
    **dict.fromkeys(names("mail mailx mutt sendmail msmtp swaks"), _mail),
    **dict.fromkeys(
        names("openssl socat ab wrk hey siege xdg-open open firefox chromium google-chrome sensible-browser"), _any_url
    ),
    **dict.fromkeys(
        names(
            "tor ngrok cloudflared chisel frpc frps openvpn wg wg-quick tailscale sshuttle autossh stunnel v2ray "
            "xray sing-box localtunnel lt bore mitmproxy mitmdump gost"
        ),
        _tunnel,
    ),
    **dict.fromkeys(
        names(
            "ip iptables ip6tables iptables-restore ip6tables-restore iptables-legacy ebtables arptables ipset "
            "nft ifconfig route nmcli resolvectl resolvconf tc ufw firewall-cmd systemd-resolve"
        ),
        _routes,
    ),
}
