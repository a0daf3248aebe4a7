"""Model hubs, model APIs, and what agents are given along with them: search, vectors, traces, remote machines."""

from harness_adapters.scrub.rule import Rule, named, token

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"

RULES: tuple[Rule, ...] = (
    token("hf_token", r"hf_(?:oauth_[A-Za-z0-9_.-]{30,900}|[A-Za-z0-9]{30,60})", "hf_"),
    token("hf_token", r"api_org_[A-Za-z0-9]{34}", "api_org_"),
    token("anthropic_key", r"sk-ant-[A-Za-z0-9_-]{24,200}", "sk-ant-"),
    token("openrouter_key", r"sk-or-(?:v1-)?[A-Za-z0-9]{40,80}", "sk-or-"),
    token(
        "openai_key",
        r"sk-(?:proj|svcacct|admin|None|service)-[A-Za-z0-9_-]{20,250}",
        "sk-proj-",
        "sk-svcacct-",
        "sk-admin-",
        "sk-none-",
        "sk-service-",
    ),
    token("openai_key", r"sk-[A-Za-z0-9]{20,60}T3BlbkFJ[A-Za-z0-9]{20,60}", "t3blbkfj"),
    token("langfuse_key", rf"sk-lf-{_UUID}", "sk-lf-"),
    named("deepseek_key", r"deepseek\w{0,20}", r"sk-[a-f0-9]{32}", "deepseek"),
    token("sk_key", r"sk-(?:[a-z]{2,12}-)?[A-Za-z0-9]{32,100}", "sk-", entropy=3.2),
    token("groq_key", r"gsk_[A-Za-z0-9]{40,60}", "gsk_"),
    token("replicate_token", r"r8_[A-Za-z0-9]{30,44}", "r8_"),
    token("xai_key", r"xai-[A-Za-z0-9]{60,100}", "xai-"),
    token("perplexity_key", r"pplx-[A-Za-z0-9]{40,64}", "pplx-"),
    token("fireworks_key", r"fw_[A-Za-z0-9]{20,48}", "fw_"),
    named("fireworks_key", r"fireworks\w*key", r"[A-Za-z0-9]{40,60}", "fireworks"),
    named("cohere_key", r"(?:cohere|\bco_api)\w{0,20}", r"[A-Za-z0-9]{40}", "cohere", "co_api_key", entropy=3.5),
    named("mistral_key", r"(?:mistral|codestral)\w{0,20}", r"[A-Za-z0-9]{32}", "mistral", "codestral", entropy=3.3),
    named(
        "together_key", r"together\w{0,20}", r"[a-f0-9]{64}", "together_", "togetherai", "together.ai", "together-api"
    ),
    token("together_key", r"tgp_v1_[A-Za-z0-9_-]{40,60}", "tgp_v1_"),
    token("nvidia_key", r"nvapi-[A-Za-z0-9_-]{50,90}", "nvapi-"),
    token("cerebras_key", r"csk-[a-z0-9]{40,60}", "csk-"),
    token("elevenlabs_key", r"sk_[a-f0-9]{48}", gate=r"sk_[a-f0-9]{8}"),
    named(
        "model_api_key",
        r"(?:ai21|aleph_alpha|anyscale|assemblyai|baseten|dashscope|deepgram|deepinfra|eleven_?labs|gemini"
        r"|hyperbolic|jina|lambda|lepton|llama_?cloud|minimax|moonshot|nebius|nomic|novita|octoai|qwen|rapidapi"
        r"|roboflow|sambanova|serpapi|serper|siliconflow|stability|unstructured|upstage|vast|voyage|zhipu|brave"
        r"|exa|bing)\w*(?:key|token)",
        r"[A-Za-z0-9._-]{20,120}",
        entropy=3.2,
    ),
    token("wandb_key", r"wandb_v1_[A-Za-z0-9_]{40,120}", "wandb_v1_"),
    named(
        "wandb_key",
        r"(?:wandb|weights.{0,3}biases)[\w .-]{0,20}",
        r"(?:local-)?[a-f0-9]{40}",
        "wandb",
        "biases",
        "weights",
    ),
    Rule("wandb_key", r"api\.wandb\.ai\s+login\s+user\s+password\s+([a-f0-9]{40})", ("wandb",)),
    named(
        "comet_key",
        r"(?:comet|neptune|clearml|mlflow|dagshub)\w*(?:key|token|password)",
        r"[A-Za-z0-9+/=_-]{20,400}",
        "comet",
        "neptune",
        "clearml",
        "mlflow",
        "dagshub",
    ),
    token("langsmith_key", r"lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}|ls__[a-f0-9]{32}", "lsv2_", "ls__"),
    token("tavily_key", r"tvly-[A-Za-z0-9-]{20,60}", "tvly-"),
    named("exa_key", r"\bexa_?(?:api)?_?key", _UUID, "exa_api", "exaapi", "exa_key"),
    token("pinecone_key", r"pcsk_[A-Za-z0-9_]{40,90}", "pcsk_"),
    named("pinecone_key", r"pinecone\w{0,20}", _UUID, "pinecone"),
    named(
        "vector_store_key",
        r"(?:qdrant|weaviate|milvus|zilliz|chroma|upstash)\w*(?:key|token)",
        r"[A-Za-z0-9_=+/-]{24,300}",
        "qdrant",
        "weaviate",
        "milvus",
        "zilliz",
        "chroma",
        "upstash",
    ),
    token("chroma_key", r"ck-[A-Za-z0-9]{40,50}", gate=r"ck-[A-Za-z0-9]{8}"),
    token("modal_token", r"(?:ak|as)-[A-Za-z0-9]{22}\b", entropy=3.3, gate=r"a[ks]-[A-Za-z0-9]{8}"),
    named("modal_token", r"modal\w*(?:id|secret|token)", r"(?:ak|as|wk|ws)-[A-Za-z0-9]{20,30}", "modal"),
    token("jina_key", r"jina_[A-Za-z0-9_-]{50,80}", "jina_"),
    token("voyage_key", r"(?:pa|al)-[A-Za-z0-9_-]{42,46}\b", entropy=4.0, gate=r"(?:pa|al)-[A-Za-z0-9_-]{8}"),
    token("firecrawl_key", r"fc-[a-f0-9]{32}\b", gate=r"fc-[a-f0-9]{8}"),
    token("e2b_key", r"e2b_[a-f0-9]{40}|sk_e2b_[a-f0-9]{40}", "e2b_"),
    token("daytona_key", r"dtn_[a-f0-9]{60,70}", "dtn_"),
    token("browserbase_key", r"bb_(?:live|test)_[A-Za-z0-9_-]{20,50}", "bb_live_", "bb_test_"),
    token("runpod_key", r"rpa_[A-Z0-9]{30,60}[a-z0-9]{0,10}", "rpa_"),
    token("kaggle_key", r"KGAT_[a-f0-9]{32}", "kgat_"),
    named("kaggle_key", r"kaggle\w*key", r"[a-f0-9]{32}", "kaggle"),
    Rule(
        "kaggle_key",
        r"(?:\\{0,3}[\"']|\x00|\b)username\\{0,3}[\"']?(?:\s?:\s?"
        r"|\x01)\\{0,3}[\"']?[\w-]{2,40}\\{0,3}[\"']?[,\s\x00]{1,6}\\{0,3}[\"']?key\\{0,3}[\"']?(?:\s?:\s?"
        r"|\x01)\\{0,3}[\"']?([a-f0-9]{32})\b",
        ("username",),
    ),
    token("cursor_key", r"(?:key|crsr)_[a-f0-9]{64}", gate=r"(?:key|crsr)_[a-f0-9]{8}"),
    token(
        "galileo_key",
        r"(?:phx|ark|arize|brtrst|lmnr|helicone|portkey)[-_][A-Za-z0-9]{32,64}",
        entropy=3.3,
        gate=r"(?:phx|ark|arize|brtrst|lmnr|helicone|portkey)[-_][A-Za-z0-9]{8}",
    ),
    token("llamacloud_key", r"llx-[A-Za-z0-9]{40,60}", "llx-"),
    token("apify_token", r"apify_api_[A-Za-z0-9]{30,44}", "apify_api_"),
    token("composio_key", r"ak_[A-Za-z0-9_-]{20,24}\b", entropy=3.6, gate=r"ak_[A-Za-z0-9_-]{8}"),
)
