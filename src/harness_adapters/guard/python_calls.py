"""Which Python functions read, write, connect or run: tables of dotted names, as patterns where families are large.

A pattern matches the full dotted name with imports resolved (`import requests as r; r.Session().get` is
`requests.Session.get`), except those made by `_last`, which ask for the end of the name only.
"""

from __future__ import annotations

import re

from harness_adapters.guard.values import names


def _whole(*patterns: str) -> re.Pattern[str]:
    return re.compile("^(?:" + "|".join(patterns) + ")$")


def _last(text: str) -> re.Pattern[str]:
    return re.compile(r"(?:^|\.)(?:" + "|".join(names(text)) + ")$")


TEXT_CALLS = frozenset(
    names(
        "print len repr format startswith endswith count find index split strip encode debug info warning error "
        "critical log match search fullmatch sub findall compile assertEqual assertIn isinstance ValueError "
        "RuntimeError Exception KeyError TypeError AssertionError SystemExit add_argument ArgumentParser getLogger "
        "write append dumps replace join lower upper urlparse urlsplit quote unquote urljoin title set_title "
        "xlabel ylabel Namespace register_namespace add extend insert setdefault update pop remove discard ljust "
        "partition rsplit splitlines removeprefix removesuffix lstrip rstrip escape unescape set list tuple dict "
        "Mock MagicMock patch Element SubElement execute executemany"
    )
)
"""Functions to which a URL or a path is text."""

TEXT_NAMES = re.compile(
    r"_?(?:is|has|can|should|check|valid|parse|norm|canon|sanit|filter|match|allow|deny|block|classif|redact|mask|split|assert)"
)
"""How functions begin that look at a text: a URL that such a one is given goes nowhere."""
READ_CALLS = re.compile(
    r"^(read|load|parse|genfromtxt|imread|connect$|exists$|is_file$|is_dir$|isfile$|isdir$|getsize|open_dataset|scan"
    r"|from_file|imp)",
    re.IGNORECASE,
)
WRITE_CALLS = re.compile(
    r"^(write|save|dump|to_(?!list|dict|numpy|string|datetime|numeric|json_string)|imwrite|export|store)", re.IGNORECASE
)

FILE_MODULES = frozenset(names("os os.path shutil io codecs glob pathlib tempfile posix gzip fileinput"))
DELETERS = frozenset(names("remove unlink rmdir rmtree removedirs"))
MOVERS = frozenset(names("rename replace move renames"))
COPIERS = frozenset(names("copy copyfile copy2 copytree copymode copystat"))
LINKERS = frozenset(names("symlink link symlink_to hardlink_to link_to"))
CHANGERS = frozenset(names("write_text write_bytes touch chmod chown truncate utime mkfifo mknod"))
LISTERS = frozenset(
    names(
        "exists is_file is_dir isfile isdir stat lstat getsize listdir scandir walk iterdir glob iglob rglob "
        "access islink mkdir makedirs getmtime"
    )
)

MOCKED = re.compile(
    r"\b(?:patch|patch\.object|setattr)\(\s*['\"]?(?:\w+\.)*(?:requests|urllib3?|http\.client|httpx|aiohttp|socket)\b"
    r"|\btransport\s*=\s*(?:httpx\.)?(?:MockTransport|ASGITransport|WSGITransport)\("
    r"|^[ \t]*(?:import|from)[ \t]+(?:responses|requests_mock|respx|httpretty|aioresponses|pook|vcr)\b",
    re.MULTILINE,
)
"""Code that replaces a client library's transport: what it asks for goes nowhere."""
CLIENTS = _whole(
    r"urllib\.request\.(urlopen|urlretrieve|Request)",
    r"urllib2\.urlopen",
    r"requests\.(\w+\.)?(get|post|put|patch|delete|head|options|request)",
    r"httpx\.(\w+\.)?(get|post|put|patch|delete|head|stream|request)",
    r"aiohttp\.(\w+\.)*(get|post|put|request|ws_connect)",
    r"urllib3\.(\w+\.)*request",
    r"websockets?\.(\w+\.)?(connect|create_connection)",
    r"webbrowser\.open\w*",
    r"wget\.download",
    r"gdown\.download",
    r"pycurl\.\w+",
)
"""Functions that take a URL."""

HOST_CLIENTS = _whole(
    r"http\.client\.HTTPS?Connection",
    r"ftplib\.FTP(_TLS)?(\.connect)?",
    r"smtplib\.SMTP(_SSL)?",
    r"telnetlib\.Telnet",
    r"imaplib\.\w+",
    r"poplib\.\w+",
    r"socket\.(gethostbyname|getaddrinfo|gethostbyname_ex|create_connection)",
    r"socket\.(\w+\.)*(connect|connect_ex|sendto)",
    r"asyncio\.open_connection",
    r"paramiko\.(\w+\.)*connect",
    r"xmlrpc\.client\.\w+",
    r"ssl\.get_server_certificate",
    r"redis\.Redis",
    r"dns\.resolver\.\w+",
)
"""Functions that take a host, or a pair of host and port."""

SERVICES = (
    (_whole(r"anthropic\.(?:Async)?Anthropic"), "api.anthropic.com"),
    (_whole(r"openai\.(?:Async)?OpenAI"), "api.openai.com"),
    (_whole(r"google\.(?:genai\.Client|generativeai\.GenerativeModel)"), "generativelanguage.googleapis.com"),
    (_whole(r"groq\.(?:Async)?Groq"), "api.groq.com"),
    (_whole(r"cohere\.(?:Async)?Client(?:V2)?"), "api.cohere.com"),
    (_whole(r"mistralai\.(?:client\.)?Mistral\w*"), "api.mistral.ai"),
    (_whole(r"litellm\.a?completion"), ""),
)
"""Clients of models that connect to a place of their own (empty: to one that the arguments choose)."""

HUB_CALLS = _last(
    "load_dataset load_dataset_builder hf_hub_download snapshot_download list_repo_files dataset_info HfApi "
    "HfFileSystem dataset_download dataset_load dataset_download_files competition_download_files "
    "list_datasets model_info download_file get_dataset_config_names"
)
"""Functions that download by name from a hub."""

DOWNLOADS = _whole(
    r"sklearn\.datasets\.fetch_\w+",
    r"nltk\.download",
    r"torch\.hub\.\w+",
    r"seaborn\.load_dataset",
    r"statsmodels\..*get_rdataset",
    r"boto3\.\w+",
    r"tensorflow_datasets\.load",
    r"kagglehub\.\w+",
)
"""Functions that download from a place of their own."""

RUNNERS = _whole(
    r"subprocess\.(run|call|check_call|check_output|Popen|getoutput|getstatusoutput)",
    r"os\.(system|popen|exec[lv]p?e?|spawn[lv]p?e?|posix_spawnp?)",
    r"pty\.spawn",
    r"asyncio\.create_subprocess_(exec|shell)",
    r"commands\.getoutput",
    r"(?:\w+\.)*(?:terminal|run_shell|run_terminal|run_command|execute_command|shell_exec)",
)
SECRET_CALLS = _last("get_token keyring\\.get_password get_credential get_credentials netrc\\.netrc get_secret_value")
