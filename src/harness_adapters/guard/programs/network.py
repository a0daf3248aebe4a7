"""Programs that connect: what they connect to, what they send and save, and how they would skip the proxy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from harness_adapters.guard.facts import (
    Connects,
    Creates,
    Deletes,
    Evades,
    Reads,
    SeeksSecret,
    SetsEnv,
    UsesDataset,
    UsesRegistry,
    Writes,
)
from harness_adapters.guard.hosts import SCP_ADDRESS, endpoint, is_loopback, looks_like_host, normalise, url_endpoints
from harness_adapters.guard.machine import DATA, Output, Run
from harness_adapters.guard.programs.generic import add_path, connect_urls, path_arguments, split_options
from harness_adapters.guard.values import ANY, hides

FROM_NETWORK = Output(ANY, net=True)

_CURL_VALUES = (
    "-o --output -d --data --data-raw --data-binary --data-urlencode --json -F --form -H --header -x --proxy -X --request -u --user "
    "-A --user-agent -e --referer -b --cookie -c --cookie-jar -T --upload-file -K --config -m --max-time --connect-timeout "
    "--retry --resolve --connect-to --noproxy --preproxy --socks5 --socks4 --socks5-hostname --socks4a --proxy1.0 --unix-socket --abstract-unix-socket "
    "--interface --dns-servers --doh-url --url --cacert --cert -E --key -w --write-out -D --dump-header -r --range "
    "--max-redirs --retry-delay -U --proxy-user --netrc-file --limit-rate --output-dir --variable --expand-url -z -t -y -Y -C -P -Q"
)
_WGET_VALUES = "-O --output-document -o --output-file -P --directory-prefix -i --input-file -e --execute --header --post-data --post-file -U --user-agent -t -T --timeout --tries -a --user --password --ca-certificate -Q -w -B --base"


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
        bare = re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*:[/\\]*", "", url)
        end = endpoint(re.split(r"[/\\?#]", bare, maxsplit=1)[0])
        run.add(Connects(run.name, end.host, end.port))
        hosts.append(end.host)
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


def _client(run: Run) -> Output:
    """Clients whose operands are hosts, `user@host`, `host:path` or URLs."""
    options, operands = split_options(
        run.args,
        "-p -P -l -i -F -o -c -e -h -H --host -u -U -t -w -s -q -J -L -R -D -W -x -T -n -m --port --timeout --user",
    )
    hosts = options.get("--host", [])
    if run.name in ("psql", "mysql", "redis-cli", "mongosh", "mongo", "mysqldump", "pg_dump"):
        hosts += options.get("-h", []) + [o for o in operands if "://" in o]
        operands = []
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
    for operand in [*operands, *hosts]:
        if operand.startswith(("/", "./", "~")) and "://" not in operand:
            add_path(run, Reads, operand)
            continue
        ends = url_endpoints(operand) or [endpoint(operand.split("/")[0])]
        for end in ends:
            run.add(Connects(run.name, end.host, end.port))
    return FROM_NETWORK


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
        else:
            add_path(run, Deletes if "--remove-source-files" in run.args else Reads, operand, deep=True)
    return DATA


def _any_url(run: Run) -> Output:
    """Browsers, load generators, tunnels …: any host-like operand."""
    found = connect_urls(run, run.args)
    for arg in run.args:
        if not arg.startswith("-") and "://" not in arg and looks_like_host(arg):
            end = endpoint(arg.split("/")[0])
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


_HUBS: Mapping[str, str] = {
    "hf": "huggingface.co",
    "huggingface-cli": "huggingface.co",
    "gh": "api.github.com",
    "hub": "api.github.com",
    "glab": "gitlab.com",
    "kaggle": "www.kaggle.com",
    "aws": "amazonaws.com",
    "s3cmd": "amazonaws.com",
    "s5cmd": "amazonaws.com",
    "gsutil": "storage.googleapis.com",
    "gcloud": "googleapis.com",
    "bq": "googleapis.com",
    "az": "azure.com",
    "docker": "registry-1.docker.io",
    "podman": "registry-1.docker.io",
    "skopeo": "registry-1.docker.io",
    "crane": "registry-1.docker.io",
    "wandb": "api.wandb.ai",
    "modal": "api.modal.com",
    "ollama": "registry.ollama.ai",
    "heroku": "api.heroku.com",
    "fly": "api.fly.io",
    "vercel": "api.vercel.com",
    "twine": "upload.pypi.org",
    "dvc": "",
    "yt-dlp": "",
    "youtube-dl": "",
    "svn": "",
    "hg": "",
    "rclone": "",
}
_TOKEN_COMMANDS = re.compile(
    r"\b(auth\s+(token|print-access-token|print-identity-token|status|login|list|application-default)|configure\s+(get|list|export-credentials)|"
    r"export-credentials|get-session-token|get-login-password|get-secret-value|get-parameters?|print-access-token|account\s+get-access-token|"
    r"config\s+config-helper|config\s+view|whoami|secret[s]?\s|sts\s)"
)


def _hub(run: Run) -> Output:
    """A client of a hosted service: reaches that service's host whatever its arguments are."""
    words = " ".join(run.args)
    if any(arg in ("--help", "-h", "--version", "version", "help") for arg in run.args) or not run.args:
        return DATA
    if _TOKEN_COMMANDS.search(words + " "):
        run.add(SeeksSecret(run.name, words[:60]))
    local = run.name in ("docker", "podman") and run.args[0] in (
        "ps",
        "images",
        "logs",
        "inspect",
        "stop",
        "rm",
        "build",
        "info",
        "exec",
    )
    if not local:
        run.add(Connects(run.name, _HUBS[run.name]))
    for arg in run.args:
        run.add(UsesDataset(run.name, arg)) if "/" in arg and not arg.startswith(("-", "/", ".")) else None
    connect_urls(run, run.args)
    for value in path_arguments(run.args):
        add_path(run, Reads, value)
    return FROM_NETWORK


def _package_manager(run: Run) -> Output:
    """`pip install`, `npm install` …: the index named by an option, or the default one."""
    words = [arg for arg in run.args if not arg.startswith("-")]
    verb = words[0] if words else ""
    if run.name == "uv" and words[:1] in (["pip"], ["tool"]):
        verb = words[1] if len(words) > 1 else ""
        words = words[1:]
    if run.name == "uv" and verb == "run":
        after = run.args[run.args.index("run") + 1 :]
        while after and after[0].startswith("-"):
            after = after[2:] if after[0] in ("--with", "--python", "-p", "--extra") else after[1:]
        return run.again(after) if after else DATA
    _package_settings(run, verb, words)
    offline = any(arg in ("--no-index", "--offline", "--dry-run") for arg in run.args)
    if verb in _FETCH_VERBS.get(run.name, _ANY_VERB) and not offline:
        ends = [end for arg in run.args for end in url_endpoints(arg)]
        for end in ends:
            run.add(Connects(run.name, end.host, end.port))
        modules = [w for w in words[1:] if run.name == "go" and looks_like_host(w.split("/")[0])]
        for module in modules:
            run.add(Connects(run.name, normalise(module.split("/")[0])))
        local = bool(words[1:]) and all(w.startswith((".", "/")) for w in words[1:])
        indexed = (
            any(
                o.startswith(("--index-url", "-i", "--registry", "--default-index", "--extra-index-url"))
                for o in run.args
            )
            and ends
        )
        if not indexed and not modules and not (local and not ends):
            run.add(UsesRegistry(run.name))
    for flag in ("--target", "-t", "--prefix", "--root", "-d", "--dest", "-r", "--requirement"):
        for i, arg in enumerate(run.args[:-1]):
            if arg == flag and "://" not in run.args[i + 1]:
                add_path(run, Reads if flag in ("-r", "--requirement") else Writes, run.args[i + 1])
    return Output(ANY, plain=True)


_ANY_VERB = frozenset("install add download get fetch update upgrade sync search exec create dlx i ci".split())
_FETCH_VERBS: Mapping[str, frozenset[str]] = {
    "go": frozenset(("get", "install", "mod")),
    "cargo": frozenset("install add fetch update search".split()),
    "npx": frozenset(),
}


def _package_settings(run: Run, verb: str, words: list[str]) -> None:
    joined = " ".join(run.args)
    if verb == "config" and "proxy" in joined and any(w in ("set", "delete", "rm", "unset") for w in words):
        run.add(Evades(run.name, "changes the package manager's proxy"))
    if verb == "config" and re.search(r"_auth|token|password", joined) and "get" in words:
        run.add(SeeksSecret(run.name, joined[:60]))
    for i, arg in enumerate(run.args):
        if arg.startswith("--proxy") or arg.startswith("--https-proxy"):
            value = arg.partition("=")[2] if "=" in arg else (run.args[i + 1] if i + 1 < len(run.args) else "")
            run.add(SetsEnv(run.name, "http_proxy", value))
        if arg.startswith("--noproxy"):
            run.add(Evades(run.name, "skips the proxy"))


def _runner_of_packages(run: Run) -> Output:
    """`npx`, `uvx`, `pipx run`: downloads unless the tool is there; then runs it."""
    connect_urls(run, run.args)
    if not any(arg in ("--no-install", "--offline") for arg in run.args):
        names = [arg for arg in run.args if not arg.startswith("-")]
        known = {
            "tsc",
            "jest",
            "vitest",
            "eslint",
            "prettier",
            "mocha",
            "ts-node",
            "tsx",
            "vite",
            "next",
            "ruff",
            "pytest",
            "mypy",
            "black",
        }
        if names and names[0].partition("@")[0] not in known:
            run.add(UsesRegistry(run.name))
        elif names:
            return run.again(run.args[run.args.index(names[0]) :])
    return DATA


def _system_packages(run: Run) -> Output:
    words = [arg for arg in run.args if not arg.startswith("-")]
    if words and words[0] in ("install", "update", "upgrade", "add", "download", "source", "-S"):
        local = len(words) > 1 and all(w.startswith((".", "/")) for w in words[1:])
        connect_urls(run, run.args)
        if not local:
            run.add(UsesRegistry(run.name))
    return DATA


def _key_store(run: Run) -> Output:
    """`security`, `secret-tool`, `pass`, `vault` …"""
    run.add(SeeksSecret(run.name, " ".join(run.args)[:60]))
    return DATA


def _keys(run: Run) -> Output:
    if run.name == "ssh-add" or "--export-secret-keys" in run.args:
        run.add(SeeksSecret(run.name, " ".join(run.args)[:60]))
    return DATA if not hides(run.stdin.text) else Output(ANY)


HANDLERS: Mapping[str, Callable[[Run], Output]] = {
    **dict.fromkeys(_HUBS, _hub),
    "curl": _curl,
    "wget": _wget,
    "wget2": _wget,
    **dict.fromkeys(
        "nc ncat netcat telnet ping ping6 traceroute tracepath mtr dig nslookup host drill kdig whois ssh mosh ftp lftp sftp psql mysql "
        "redis-cli mongosh mongo mysqldump pg_dump nmap arp-scan http https xh httpie aria2c axel lynx links elinks w3m "
        "websocat wscat grpcurl getent".split(),
        _client,
    ),
    **dict.fromkeys(("scp", "rsync"), _copier),
    **dict.fromkeys(
        "openssl socat ab wrk hey siege xdg-open open firefox chromium google-chrome sensible-browser".split(), _any_url
    ),
    **dict.fromkeys(
        "tor ngrok cloudflared chisel frpc frps openvpn wg wg-quick tailscale sshuttle autossh stunnel v2ray xray sing-box mitmproxy mitmdump gost".split(),
        _tunnel,
    ),
    **dict.fromkeys(
        "ip iptables ip6tables nft ifconfig route nmcli resolvectl resolvconf tc ufw firewall-cmd systemd-resolve".split(),
        _routes,
    ),
    **dict.fromkeys(
        "pip pip3 pipx uv npm pnpm yarn cargo go gem conda mamba poetry pdm bun cpan cpanm composer brew luarocks".split(),
        _package_manager,
    ),
    **dict.fromkeys(("npx", "uvx", "bunx"), _runner_of_packages),
    **dict.fromkeys("apt apt-get aptitude dnf yum apk pacman zypper".split(), _system_packages),
    **dict.fromkeys(
        "security secret-tool pass op vault bw lpass keyring kwallet-query gopass docker-credential-desktop".split(),
        _key_store,
    ),
    **dict.fromkeys(("ssh-add",), _keys),
}
