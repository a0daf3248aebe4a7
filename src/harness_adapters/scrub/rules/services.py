"""Payments, chat, mail, monitoring and the services that people give their agents keys for."""

from harness_adapters.scrub.rule import Rule, named, token

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"

_PAYMENTS: tuple[Rule, ...] = (
    token(
        "stripe_key",
        r"(?:sk|rk)_(?:live|test|prod)_[A-Za-z0-9]{10,150}",
        "sk_live_",
        "sk_test_",
        "sk_prod_",
        "rk_live_",
        "rk_test_",
        "rk_prod_",
    ),
    token("webhook_secret", r"whsec_[A-Za-z0-9+/=_-]{24,80}", "whsec_"),
    token(
        "square_token",
        r"sq0(?:atp|csp|idp)-[A-Za-z0-9_-]{20,50}|EAAA[A-Za-z0-9_-]{60}",
        "sq0atp-",
        "sq0csp-",
        "sq0idp-",
        "eaaa",
    ),
    token("braintree_token", r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}", "access_token$"),
    named("paypal_secret", r"paypal\w*(?:secret|id|token)", r"[A-Za-z0-9_-]{64,90}", "paypal"),
    token("plaid_token", rf"access-(?:sandbox|development|production)-{_UUID}", "access-"),
    named("plaid_token", r"plaid\w*(?:secret|id)", r"[a-f0-9]{24,30}", "plaid"),
    token("razorpay_key", r"rzp_(?:live|test)_[A-Za-z0-9]{14,24}", "rzp_"),
    token(
        "shopify_token",
        r"shp(?:at|ca|pa|ss|ua|tka)_[A-Fa-f0-9]{32}",
        "shpat_",
        "shpca_",
        "shppa_",
        "shpss_",
        "shpua_",
        "shptka_",
    ),
    token("flutterwave_key", r"FLW(?:SECK|PUBK)(?:_TEST)?-[A-Za-z0-9-]{12,60}", "flwseck", "flwpubk"),
    named("gocardless_token", r"gocardless\w{0,20}", r"(?:live|sandbox)_[A-Za-z0-9_=-]{40}", "gocardless"),
    token("paddle_key", r"pdl_(?:live|sdbx)_apikey_[A-Za-z0-9_]{30,80}|pdl_ntfset_[A-Za-z0-9_/+]{30,80}", "pdl_"),
    token("polar_token", r"polar_(?:oat|pat|at_u|at_o|rt_u)_[A-Za-z0-9]{30,60}", "polar_"),
    token("easypost_key", r"EZ[AT]K[A-Za-z0-9]{54}", "ezak", "eztk"),
    token("shippo_token", r"shippo_(?:live|test)_[a-fA-F0-9]{40}", "shippo_"),
    token("duffel_token", r"duffel_(?:test|live)_[A-Za-z0-9_=-]{43}", "duffel_"),
)

_CHAT: tuple[Rule, ...] = (
    token(
        "slack_token",
        r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,300}",
        "xoxa",
        "xoxb",
        "xoxe",
        "xoxo",
        "xoxp",
        "xoxr",
        "xoxs",
    ),
    token("slack_token", r"xapp-[0-9]-[A-Z0-9]{6,20}-[0-9]{6,20}-[a-f0-9]{40,100}", "xapp-"),
    Rule(
        "slack_webhook",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9+/]{30,90})",
        ("hooks.slack.com",),
        3.0,
    ),
    token(
        "discord_token",
        r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}",
        entropy=4.0,
        gate=r"[MNO][A-Za-z0-9_-]{22,}\.[A-Za-z0-9_-]{6}\.",
    ),
    token("discord_token", r"mfa\.[A-Za-z0-9_-]{80,95}", "mfa."),
    Rule(
        "discord_webhook",
        r"discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/([0-9]{15,21}/[A-Za-z0-9_-]{50,90})",
        ("/webhooks/",),
        3.0,
    ),
    named("discord_secret", r"discord\w*(?:secret|key|token)", r"[A-Za-z0-9_-]{32}|[a-f0-9]{64}", "discord"),
    token(
        "telegram_token",
        r"(?:bot)?[0-9]{8,10}:[A-Za-z0-9_-]{35}\b",
        entropy=3.8,
        gate=r"(?:bot)?[0-9]{8,10}:[A-Za-z0-9_-]{8}",
    ),
    Rule("teams_webhook", r"\.webhook\.office\.com/webhookb2/([^\s\"'<>\\\x00]{60,300})", ("webhook.office.com",)),
    Rule(
        "power_automate_url",
        r"logic\.azure\.com[^\s\"'<>\\\x00]{0,200}[?&]sig=([A-Za-z0-9_%-]{40,60})",
        ("logic.azure.com",),
    ),
    Rule(
        "google_chat_webhook", r"chat\.googleapis\.com/v1/spaces/([^\s\"'<>\\\x00]{30,200})", ("chat.googleapis.com",)
    ),
    named(
        "chat_token",
        r"(?:mattermost|twitch|zoom|line|webex|matrix|rocket_?chat)\w*(?:secret|key|token)",
        r"[A-Za-z0-9+/=_-]{24,200}",
    ),
    token(
        "matrix_token",
        r"sy[tlr]_[A-Za-z0-9+/=]{2,80}_[A-Za-z]{20}_[A-Za-z0-9]{6}|mct_[A-Za-z0-9]{30}_[A-Za-z0-9]{6}",
        "syt_",
        "syl_",
        "syr_",
        "mct_",
    ),
    token("facebook_token", r"EAA[A-Za-z0-9]{80,300}\b", "eaa", entropy=4.0),
    Rule(
        "twitter_token", r"\b(A{16,22}[A-Za-z0-9%]{60,140})", ("aaaaaaaaaaaaaaaa",), 3.0, check=lambda text, match: True
    ),
    named(
        "social_secret",
        r"(?:facebook|twitter|linkedin|reddit|instagram|spotify|youtube|tiktok)\w*(?:secret|key|token)",
        r"[A-Za-z0-9_-]{16,100}",
        entropy=3.2,
    ),
)

_MAIL: tuple[Rule, ...] = (
    token("sendgrid_key", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,64}", gate=r"SG\.[A-Za-z0-9_-]{8}"),
    token("mailgun_key", r"(?:key|pubkey)-[a-f0-9]{32}\b|[a-f0-9]{32}-[a-f0-9]{8}-[a-f0-9]{8}\b", "key-", "mailgun"),
    token("mailchimp_key", r"[a-f0-9]{32}-us[0-9]{1,2}\b", gate=r"[a-f0-9]{8,}-us[0-9]"),
    token("resend_key", r"re_[A-Za-z0-9]{6,12}_[A-Za-z0-9]{20,40}", gate=r"re_[A-Za-z0-9]{6,}_"),
    named("resend_key", r"resend\w*key", r"re_[A-Za-z0-9_]{20,60}", "resend_", "resendapi"),
    token("brevo_key", r"x(?:keysib|smtpsib)-[a-f0-9]{64}-[A-Za-z0-9]{16}", "xkeysib-", "xsmtpsib-"),
    token("mandrill_key", r"md-[A-Za-z0-9_-]{22}\b", entropy=3.8, gate=r"md-[A-Za-z0-9_-]{22}"),
    named(
        "mail_token",
        r"(?:postmark|sparkpost|mailjet|smtp)\w*(?:token|key|secret|password)",
        rf"{_UUID}|[A-Za-z0-9]{{24,64}}",
        "postmark",
        "sparkpost",
        "mailjet",
        "smtp",
    ),
    token("twilio_key", r"SK[0-9a-f]{32}\b", gate=r"SK[0-9a-f]{8}"),
    named("twilio_token", r"twilio\w{0,30}", r"[0-9a-f]{32}", "twilio"),
    named(
        "sms_token",
        r"(?:messagebird|vonage|nexmo|plivo|telnyx|sinch)\w*(?:key|token|secret)",
        r"[A-Za-z0-9_-]{8,80}",
        "messagebird",
        "vonage",
        "nexmo",
        "plivo",
        "telnyx",
        "sinch",
    ),
)

_MONITORING: tuple[Rule, ...] = (
    named(
        "datadog_key",
        r"(?:datadog|dd)[_-]\w*(?:key|token)|dd-(?:api|application)-key|datadog\w{0,20}",
        r"[a-f0-9]{32}|[a-f0-9]{40}",
        "datadog",
        "dd_a",
        "dd-a",
    ),
    token("datadog_key", r"ddapp_[A-Za-z0-9]{30,40}|ddpat_[A-Za-z0-9_-]{30,60}", "ddapp_", "ddpat_"),
    token(
        "sentry_token", r"sntrys_eyJ[A-Za-z0-9+/=_-]{60,900}|sntry[ua]_[a-f0-9]{64}", "sntrys_", "sntryu_", "sntrya_"
    ),
    named("sentry_token", r"sentry\w*token", r"[a-f0-9]{64}", "sentry"),
    Rule(
        "sentry_dsn",
        r"https?://([a-f0-9]{32}(?::[a-f0-9]{32})?)@[a-z0-9.-]{1,80}/[0-9]{1,20}",
        (),
        3.0,
        gate=r"://[^\s/@\"'<>]+@",
    ),
    token(
        "newrelic_key",
        r"NRAK-[A-Z0-9]{27}|NRJS-[a-f0-9]{19}|NRII-[A-Za-z0-9_-]{32}|NRAA-[a-f0-9]{27}|NRRA-[a-f0-9]{42}",
        "nrak-",
        "nrjs-",
        "nrii-",
        "nraa-",
        "nrra-",
    ),
    token("newrelic_key", r"(?:eu01xx|gov01x|us01xx)?[a-f0-9]{28,36}(?:FFFF)?NRAL\b", "nral"),
    token(
        "grafana_token",
        r"glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}|glc_[A-Za-z0-9+/]{32,400}={0,2}|eyJrIjoi[A-Za-z0-9+/]{60,400}={0,2}",
        "glsa_",
        "glc_",
        "eyjrijoi",
    ),
    token(
        "honeycomb_key",
        r"hc[abc][il]k_[A-Za-z0-9]{40,70}|hcxik_[A-Za-z0-9]{40,70}",
        "hcaik_",
        "hcbik_",
        "hccik_",
        "hcalk_",
        "hcxik_",
    ),
    token("posthog_key", r"ph[xsr]_[A-Za-z0-9]{32,60}", "phx_", "phs_", "phr_"),
    token("dynatrace_token", r"dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}", "dt0"),
    named(
        "monitoring_token",
        r"(?:splunk|rollbar|pagerduty|opsgenie|logdna|logz|sumo_?logic|new_?relic|honeycomb|bugsnag|airbrake"
        r"|segment|amplitude|mixpanel|algolia|elastic|loggly|papertrail|pingdom|statuspage|instana|lightstep"
        r"|signoz|axiom)\w*(?:key|token|secret)",
        rf"{_UUID}|[A-Za-z0-9_+/=-]{{20,100}}",
        entropy=3.2,
    ),
    token("axiom_token", rf"xa(?:at|pt)-{_UUID}", "xaat-", "xapt-"),
    token("launchdarkly_key", rf"(?:sdk|api|mob)-{_UUID}", gate=r"(?:sdk|api|mob)-[0-9a-fA-F]{8}-"),
    token("statsig_key", r"(?:secret|console)-[A-Za-z0-9]{40,50}\b", gate=r"(?:secret|console)-[A-Za-z0-9]{8}"),
)

_WORK: tuple[Rule, ...] = (
    token("linear_key", r"lin_(?:api|oauth|wh)_[A-Za-z0-9]{32,70}", "lin_"),
    token("notion_key", r"ntn_[A-Za-z0-9]{40,60}|secret_[A-Za-z0-9]{43}\b", gate=r"(?:secret|ntn)_[A-Za-z0-9]{8}"),
    token("airtable_token", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}", gate=r"pat[A-Za-z0-9]{14}\."),
    named("airtable_token", r"airtable\w{0,20}", r"key[A-Za-z0-9]{14}", "airtable"),
    token("postman_key", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}", "pmak-"),
    token("figma_token", r"fig[durop]h?_[A-Za-z0-9_-]{38,60}", "figd_", "figu_", "figr_", "figo_", "figp_", "figdh_"),
    token("clickup_token", r"pk_[0-9]{5,12}_[A-Z0-9]{32}", "pk_"),
    token("hubspot_token", rf"pat-(?:na|eu|ap)[0-9]-{_UUID}", "pat-"),
    named(
        "saas_secret",
        r"(?:asana|auth0|box|clerk|clickup|contentful|discourse|docusign|dropbox|figma|freshdesk|hubspot"
        r"|intercom|jotform|mapbox|monday|okta|pipedrive|salesforce|servicenow|shopify|todoist|trello|typeform"
        r"|webflow|workday|workos|zapier|zendesk)\w*(?:key|token|secret|password)",
        r"[A-Za-z0-9_/+.=-]{20,300}",
        entropy=3.2,
    ),
    token("asana_token", r"[0-9]/[0-9]{12,18}(?:/[0-9]{12,18})?:[a-f0-9]{32}", gate=r"[0-9]/[0-9]{8}"),
    named("okta_token", r"(?:okta|ssws)[\w .-]{0,20}", r"00[A-Za-z0-9_-]{40}", "okta", "ssws"),
    Rule("okta_token", r"SSWS\s(00[A-Za-z0-9_-]{38,42})", ("ssws",)),
    token("contentful_token", r"CFPAT-[A-Za-z0-9_-]{43}", "cfpat-"),
    token("typeform_token", r"tfp_[A-Za-z0-9_.=-]{50,70}", "tfp_"),
    token("dropbox_token", r"sl\.(?:u\.)?[A-Za-z0-9_-]{60,1000}", gate=r"sl\.[A-Za-z0-9_.-]{8}"),
    token("mapbox_token", r"sk\.eyJ[A-Za-z0-9_-]{40,120}\.[A-Za-z0-9_-]{20,24}", "sk.eyj"),
    token("readme_key", r"rdme_[a-z0-9]{70}", "rdme_"),
    token("prefect_key", r"pn[ub]_[A-Za-z0-9]{36}", "pnu_", "pnb_"),
    token("adafruit_key", r"aio_[A-Za-z0-9]{28}", "aio_"),
    token("frameio_token", r"fio-u-[A-Za-z0-9_=-]{64}", "fio-u-"),
    token("scalingo_token", r"tk-us-[A-Za-z0-9_-]{48}", "tk-us-"),
    token("settlemint_token", r"sm_(?:aat|pat|sat)_[A-Za-z0-9]{16,40}", "sm_aat_", "sm_pat_", "sm_sat_"),
    token("canva_token", r"cnv[a-z]{2}[A-Za-z0-9_-]{30,60}", entropy=4.0, gate=r"cnv[a-z]{2}[A-Za-z0-9_-]{8}"),
    token("wakatime_key", rf"waka_{_UUID}", "waka_"),
    token(
        "trigger_key",
        r"tr_(?:dev|prod|stg|preview|pat)_[A-Za-z0-9]{16,50}",
        "tr_dev_",
        "tr_prod_",
        "tr_stg_",
        "tr_preview_",
        "tr_pat_",
    ),
    token("inngest_key", r"signkey-(?:prod|test|branch)-[a-f0-9]{32,64}", "signkey-"),
    token("liveblocks_key", r"sk_(?:dev|prod|local)_[A-Za-z0-9_-]{24,100}", "sk_dev_", "sk_prod_", "sk_local_"),
    token(
        "grammarly_key", r"(?:client-secret|apikey)[:_-][A-Za-z0-9_-]{32,64}", "client-secret", "apikey", entropy=3.8
    ),
)

RULES: tuple[Rule, ...] = (*_PAYMENTS, *_CHAT, *_MAIL, *_MONITORING, *_WORK)
