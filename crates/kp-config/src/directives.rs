//! The table of directives: what may stand where, with how many arguments, and what it sets.
//!
//! It is the one place that lists them. Both front ends ask it for the shape of a directive (the YAML front end must
//! know whether a list means repetitions and whether a mapping's keys are block arguments), the draft asks it for the
//! setter, and `docs/configuration.md` is written from it. It decides nothing about values: the setters do. Words of nginx
//! that have nothing to do in kp stand in `directives/inert.rs`.

use crate::draft::Setter;

/// Where a directive may stand: a set of block kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contexts(u16);

impl Contexts {
    /// Outside any block.
    pub const MAIN: Self = Self(1);
    /// `events`.
    pub const EVENTS: Self = Self(1 << 1);
    /// `http`.
    pub const HTTP: Self = Self(1 << 2);
    /// `server` in `http`.
    pub const SERVER: Self = Self(1 << 3);
    /// `location`.
    pub const LOCATION: Self = Self(1 << 4);
    /// `if` in `server`.
    pub const SERVER_IF: Self = Self(1 << 5);
    /// `if` in `location`.
    pub const LOCATION_IF: Self = Self(1 << 6);
    /// `upstream`.
    pub const UPSTREAM: Self = Self(1 << 7);
    /// `map` and `split_clients`.
    pub const MAP: Self = Self(1 << 8);
    /// `types`.
    pub const TYPES: Self = Self(1 << 9);
    /// `match`.
    pub const MATCH: Self = Self(1 << 10);
    /// `limit_except`.
    pub const LIMIT_EXCEPT: Self = Self(1 << 11);
    /// `log_format`.
    pub const LOG_FORMAT: Self = Self(1 << 12);

    const NAMES: [(Self, &'static str); 13] = [
        (Self::MAIN, "main"),
        (Self::EVENTS, "events"),
        (Self::HTTP, "http"),
        (Self::SERVER, "server"),
        (Self::LOCATION, "location"),
        (Self::SERVER_IF, "if in server"),
        (Self::LOCATION_IF, "if in location"),
        (Self::UPSTREAM, "upstream"),
        (Self::MAP, "map"),
        (Self::TYPES, "types"),
        (Self::MATCH, "match"),
        (Self::LIMIT_EXCEPT, "limit_except"),
        (Self::LOG_FORMAT, "log_format"),
    ];

    /// Both sets together.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the sets have a block kind in common.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Every block kind, outermost first.
    pub fn each() -> impl Iterator<Item = Self> {
        Self::NAMES.into_iter().map(|(context, _)| context)
    }

    /// The block kinds by name, outermost first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .filter(move |(context, _)| self.contains(*context))
            .map(|(_, name)| name)
    }
}

/// How many arguments a directive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arity {
    /// At least.
    pub min: usize,
    /// At most; `None`: any number.
    pub max: Option<usize>,
}

impl Arity {
    /// Whether a directive may have this many arguments.
    pub fn accepts(self, count: usize) -> bool {
        count >= self.min && self.max.is_none_or(|max| count <= max)
    }
}

/// What a directive's block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// No block: the directive ends with `;`.
    None,
    /// Directives of the given context. (`if` and `location` are told apart by where they stand.)
    Of(Contexts),
    /// Free entries of `map` or `types`: names are data.
    Entries(Contexts),
    /// `log_format`: a `;`, or a block of free entries, which may have blocks themselves.
    Optional(Contexts),
}

impl BlockKind {
    /// Whether the directive may end with a `;`.
    pub fn may_be_left_out(self) -> bool {
        matches!(self, Self::None | Self::Optional(_))
    }
}

/// One row of the table. A name may have several rows where it means different things (`server`, `keepalive_time`).
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The directive's name.
    pub name: &'static str,
    /// Its arguments, as in a manual.
    pub syntax: &'static str,
    /// Where it may stand.
    pub contexts: Contexts,
    /// How many arguments it takes.
    pub arity: Arity,
    /// Whether it may stand more than once in one block. A YAML list is then a list of repetitions, else of arguments.
    pub repeatable: bool,
    /// Its block.
    pub block: BlockKind,
    /// What holds without it; `None` where there is no such value.
    pub default: Option<&'static str>,
    /// One line about it.
    pub doc: &'static str,
    /// What it does to the draft.
    pub(crate) set: Setter,
}

impl Entry {
    /// Whether its block takes arguments before the `{`: in YAML the mapping's keys are these arguments.
    pub fn block_takes_args(&self) -> bool {
        self.block != BlockKind::None && self.arity.max != Some(0)
    }
}

/// Whose a directive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// nginx has it, in the same place.
    Nginx,
    /// nginx has it in its commercial edition only.
    Plus,
    /// kp's own.
    Kp,
}

/// Directives that of nginx's editions only the commercial one has.
const PLUS: [&str; 3] = ["health_check", "match", "queue"];

impl Entry {
    /// Whether blocks take it from those around them until they have their own.
    pub fn inherits(&self) -> bool {
        matches!(
            self.set,
            Setter::Level(_) | Setter::Early(_) | Setter::Tls(_)
        )
    }

    /// Whether it is there for configurations of nginx only: it sets nothing.
    pub fn is_inert(&self) -> bool {
        matches!(
            self.set,
            Setter::Ignored(_) | Setter::Only(_) | Setter::TryFiles
        )
    }

    /// Whose it is. What is kp's own says so in its documentation.
    pub fn origin(&self) -> Origin {
        if self.doc.contains("(kp's own") {
            Origin::Kp
        } else if PLUS.contains(&self.name) || self.contexts == Contexts::MATCH {
            Origin::Plus
        } else {
            Origin::Nginx
        }
    }
}

/// Every row, by name within each context group, for documentation and tests.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    ROWS.iter().chain(inert::ROWS)
}

/// The row of a directive in a context.
pub fn find(name: &str, context: Contexts) -> Option<&'static Entry> {
    named(name).find(|entry| entry.contexts.contains(context))
}

/// Every row of a name; empty for an unknown directive.
pub fn named(name: &str) -> impl Iterator<Item = &'static Entry> {
    all().filter(move |entry| entry.name == name)
}

const M: Contexts = Contexts::MAIN;
const E: Contexts = Contexts::EVENTS;
const H: Contexts = Contexts::HTTP;
const S: Contexts = Contexts::SERVER;
const L: Contexts = Contexts::LOCATION;
const HS: Contexts = H.or(S);
const HSL: Contexts = HS.or(L);
const HSLI: Contexts = HSL.or(Contexts::LOCATION_IF);
const LI: Contexts = L.or(Contexts::LOCATION_IF);
const HSLX: Contexts = HSL.or(Contexts::LIMIT_EXCEPT);
const SL: Contexts = S.or(L);
const REWRITE: Contexts = SL.or(Contexts::SERVER_IF).or(Contexts::LOCATION_IF);
const U: Contexts = Contexts::UPSTREAM;
const MATCH: Contexts = Contexts::MATCH;
const ANYWHERE: Contexts = M
    .or(E)
    .or(HSL)
    .or(U)
    .or(Contexts::MAP)
    .or(Contexts::TYPES)
    .or(MATCH)
    .or(Contexts::LIMIT_EXCEPT)
    .or(Contexts::LOG_FORMAT)
    .or(REWRITE);

const ONCE: bool = false;
const MANY: bool = true;

macro_rules! arity {
    ($count:literal) => {
        Arity {
            min: $count,
            max: Some($count),
        }
    };
    ($min:literal +) => {
        Arity {
            min: $min,
            max: None,
        }
    };
    ($min:literal to $max:literal) => {
        Arity {
            min: $min,
            max: Some($max),
        }
    };
}

macro_rules! default {
    (none) => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}

macro_rules! block {
    () => {
        BlockKind::None
    };
    (of $context:expr) => {
        BlockKind::Of($context)
    };
    (entries $context:expr) => {
        BlockKind::Entries($context)
    };
    (optional $context:expr) => {
        BlockKind::Optional($context)
    };
}

/// One row per directive: name, syntax, contexts, arity, repeatable, default, `{ block }`, setter, documentation.
macro_rules! table {
    ($($name:literal $syntax:literal, $contexts:ident, ($($arity:tt)+), $repeat:ident, $default:tt, {$($block:tt)*}, [$($set:tt)+], $doc:literal;)*) => {
        pub(super) static ROWS: &[Entry] = &[$(Entry {
            name: $name,
            syntax: $syntax,
            contexts: $contexts,
            arity: arity!($($arity)+),
            repeatable: $repeat,
            block: block!($($block)*),
            default: default!($default),
            doc: $doc,
            set: crate::draft::setter!($($set)+),
        },)*];
    };
}

// Below the macros, since it has a table of its own.
mod inert;

table! {
    "include" "file | mask", ANYWHERE, (1), MANY, none, {}, [loader], "Reads another file, or every file that matches the mask, in this place; relative to the directory of the main configuration file.";

    "daemon" "on | off", M, (1), ONCE, "on", {}, [main flag daemon], "Whether kp goes to the background.";
    "master_process" "on | off", M, (1), ONCE, "on", {}, [main flag master_process], "With `off` one process does everything; for debugging. It does not reload: HUP changes nothing.";
    "worker_processes" "number | auto", M, (1), ONCE, "1", {}, [main worker_processes worker_processes], "How many workers; `auto` is one per core.";
    "user" "user [group]", M, (1 to 2), ONCE, "nobody", {}, [main user user], "The user and group that workers run as when the master was started by root; without a group the user's name is taken for it.";
    "pid" "file", M, (1), ONCE, "/run/kp.pid", {}, [main path pid], "The file with the master's process id.";
    "working_directory" "directory", M, (1), ONCE, none, {}, [main path working_directory], "The current directory of the workers; core files land there.";
    "worker_rlimit_nofile" "number", M, (1), ONCE, none, {}, [main number worker_rlimit_nofile], "The limit of open files of a worker.";
    "worker_rlimit_core" "size", M, (1), ONCE, none, {}, [main size worker_rlimit_core], "The limit of the size of a worker's core file; without it that which kp was started with.";
    "worker_priority" "number", M, (1), ONCE, "0", {}, [main nice worker_priority], "The scheduling priority of workers, as nice(1) has it: from -20, which is served first, to 19; without it that which kp was started with.";
    "worker_cpu_affinity" "mask ... | auto [mask]", M, (1+), ONCE, none, {}, [main cpu_affinity worker_cpu_affinity], "Which CPUs each worker may run on; the last mask holds for all further workers.";
    "worker_shutdown_timeout" "time", M, (1), ONCE, none, {}, [main time worker_shutdown_timeout], "How long a worker that stops gracefully waits for its connections before it closes them.";
    "worker_memory" "size", M, (1), ONCE, "512m", {}, [main worker_memory worker_memory], "The memory a worker may use for connections, buffers and bodies, the kernel's part for its sockets included; when it is gone new requests get 503 (kp's own).";
    "stop_signal" "fast | graceful", M, (1), ONCE, "fast", {}, [main stop_signal stop_signal], "What SIGTERM means to the master (kp's own): with `graceful` it finishes what it has, as QUIT, and a second SIGTERM ends that; for container runtimes and supervisors that know one signal. SIGINT and `kp -s stop` are fast in any case.";
    "error_log" "file | stderr | syslog:server=address[,parameter=value] [level] [format=text|json]", M, (1 to 3), MANY, "error.log error", {}, [main error_log error_log], "Where messages go and the least severe level that is written: debug, info, notice, warn, error, crit, alert or emerg. With `format=json` (kp's own) each is a JSON object. `docs/logs.md` tells more.";
    "events" "{ ... }", M, (0), ONCE, none, {of E}, [block], "Settings of connection processing.";
    "http" "{ ... }", M, (0), ONCE, none, {of H}, [block], "The HTTP proxy.";

    "worker_connections" "number", E, (1), ONCE, "512", {}, [main positive worker_connections], "The most connections of one worker, to clients and upstreams together.";
    "multi_accept" "on | off", E, (1), ONCE, "off", {}, [main flag multi_accept], "Whether a worker takes all waiting connections at once, or 64 and then looks after those it has.";
    "use" "epoll", E, (1), ONCE, "epoll", {}, [main event_method use_method], "The event method; kp knows one.";

    "server" "{ ... }", H, (0), MANY, none, {of S}, [block], "A virtual host.";
    "upstream" "name { ... }", H, (1), MANY, none, {of U}, [block], "A group of servers that `proxy_pass` can name.";
    "match" "name { ... }", H, (1), MANY, none, {of MATCH}, [block], "Conditions that the answer to a `health_check` must meet, all of them.";
    "status" "[!] code | from-to ...", MATCH, (1+), MANY, none, {}, [match status], "The answer has one of the statuses, or with `!` none of them.";
    "header" "name | ! name | name =|!= value | name ~|!~|~*|!~* regex", MATCH, (1 to 3), MANY, none, {}, [match header], "The answer has the field, or with `!` does not; its value is or is not this, matches or does not match the expression.";
    "body" "~|!~|~*|!~* regex", MATCH, (2), MANY, none, {}, [match body], "The first 256k of the answer's body match the expression, or do not.";
    "require" "$variable ...", MATCH, (1+), MANY, none, {}, [match require], "None of the variables is empty or `0`.";
    "send" "text", MATCH, (1), ONCE, none, {}, [match send], "What a check with `type=tcp` sends once it is connected; `\\xHH` is a byte.";
    "expect" "text | ~|~* regex", MATCH, (1 to 2), ONCE, none, {}, [match expect], "What the peer says to a check with `type=tcp`: it begins with the text, or matches the expression.";
    "map" "string $variable { ... }", H, (2), MANY, none, {entries Contexts::MAP}, [block], "Defines a variable whose value is looked up by another value: exact texts, `default`, `hostnames` masks, `~` and `~*` expressions.";
    "split_clients" "string $variable { ... }", H, (2), MANY, none, {entries Contexts::MAP}, [block], "Defines a variable whose value depends on the hash of another one: each line is a share in percent (`0.5%`, or `*` for the rest) and a value. The same client always gets the same value, as with nginx; with `access_log ... if=` it is a sample.";
    "log_format" "name [escape=default|json|none] string ... | name json { field value; ... }", H, (1+), MANY, "combined", {optional Contexts::LOG_FORMAT}, [http with log_format], "A format of access log lines; `combined` is predefined. With `json` (kp's own) a line is a JSON object of the fields in the block, whose values are numbers, booleans and lists where the variable is one by nature, and a field may be a block of fields. `docs/logs.md` tells more.";

    "listen" "address[:port] | port | unix:path [default_server] [ssl] [backlog=number] [rcvbuf=size] [sndbuf=size] [reuseport] [ipv6only=on|off] [so_keepalive=on|off|[idle]:[interval]:[count]]", S, (1+), MANY, "*:80 | *:8000", {}, [server with listen], "An address the virtual host is served at; without any it is port 80, or 8000 when kp was not started by root. With `ssl` connections begin with a TLS handshake; `http2` is accepted, no effect.";
    "server_name" "name ...", S, (1+), MANY, "\"\"", {}, [server with server_name], "Names of the virtual host: exact, `*.example.com`, `.example.com`, `www.example.*`, `~expression`; `\"\"` is a request without Host.";
    "client_header_timeout" "time", HS, (1), ONCE, "60s", {}, [early time client_header_timeout], "How long a request head may take, from its first byte or from accept.";
    "client_header_buffer_size" "size", HS, (1), ONCE, "1k", {}, [early size client_header_buffer_size], "The first buffer of a request head.";
    "large_client_header_buffers" "number size", HS, (2), ONCE, "4 8k", {}, [early buffers large_client_header_buffers], "The longest request line and header field, and how many of them a head may fill.";
    "max_headers" "number", HS, (1), ONCE, "1000", {}, [early number max_headers], "The most header fields of a request.";
    "underscores_in_headers" "on | off", HS, (1), ONCE, "off", {}, [early flag underscores_in_headers], "Whether `_` is allowed in header names.";
    "ignore_invalid_headers" "on | off", HS, (1), ONCE, "on", {}, [early flag ignore_invalid_headers], "Whether fields with names of unusual characters are dropped; otherwise they are passed on.";
    "merge_slashes" "on | off", HS, (1), ONCE, "on", {}, [early flag merge_slashes], "Whether several slashes in a row count as one when a location is looked for.";
    "accept_bare_lf" "on | off", HS, (1), ONCE, "off", {}, [early flag accept_bare_lf], "Whether a line of a head may end with LF alone (kp's own; chunk framing is always strict).";

    "ssl_certificate" "file", HS, (1), MANY, none, {}, [tls tls_files certificates], "A certificate with its chain, PEM, the server's own first. Several with several keys: the one is chosen that the client can use. A file with variables, or `data:` and a variable with the text itself, is loaded during the handshake.";
    "ssl_certificate_key" "file", HS, (1), MANY, none, {}, [tls tls_files keys], "The key of a certificate, PEM: PKCS#1, PKCS#8 (encrypted, too) or SEC1; as many as there are certificates, in their order.";
    "ssl_password_file" "file", HS, (1), ONCE, none, {}, [tls tls_path passwords], "Passwords of encrypted keys, one on a line.";
    "ssl_certificate_cache" "off | max=number [inactive=time] [valid=time]", HS, (1 to 3), ONCE, "off", {}, [tls certificate_cache certificate_cache], "How many certificates with variables are kept, how long without use, and after which time one is loaded anew.";
    "ssl_certificate_reload" "on | off", HS, (1), ONCE, "off", {}, [tls flag certificate_reload], "Whether changed files of certificates and keys are taken up without a reload; a pair that is broken leaves the one before in use (kp's own).";
    "ssl_reject_handshake" "on | off", HS, (1), ONCE, "off", {}, [tls flag reject_handshake], "Whether handshakes for the server's names are refused.";
    "ssl_protocols" "[TLSv1.2] [TLSv1.3]", HS, (1+), MANY, "TLSv1.2 TLSv1.3", {}, [tls tls_protocols protocols], "The versions of TLS. Older ones, which kp does not speak, are left out with a warning.";
    "ssl_ciphers" "ciphers", HS, (1), ONCE, "HIGH:!aNULL:!MD5", {}, [tls tls_ciphers ciphers], "The cipher suites of TLSv1.2, as OpenSSL writes them. What kp does not have is left out with a warning.";
    "ssl_conf_command" "Ciphersuites suites", HS, (2), MANY, none, {}, [tls tls_command commands], "The cipher suites of TLSv1.3, by name with `:` between them. Other commands of OpenSSL are not supported.";
    "ssl_ecdh_curve" "group[:group ...] | auto", HS, (1), ONCE, "auto", {}, [tls tls_groups groups], "The groups for the key exchange; `auto` is X25519MLKEM768, X25519, prime256v1 and secp384r1.";
    "ssl_prefer_server_ciphers" "on | off", HS, (1), ONCE, "off", {}, [tls flag prefer_server_ciphers], "Whether the server's order of cipher suites counts, not the client's.";
    "ssl_buffer_size" "size", HS, (1), ONCE, "16k", {}, [tls positive_size buffer_size], "How much is sent in one record, 16k at most.";
    "ssl_handshake_timeout" "time", HS, (1), ONCE, none, {}, [tls time handshake_timeout], "How long a handshake may take from accept; without it `client_header_timeout`, as in nginx (kp's own in http).";
    "ssl_session_tickets" "on | off", HS, (1), ONCE, "on", {}, [tls flag session_tickets], "Whether sessions can be resumed, by tickets.";
    "ssl_session_ticket_key" "file", HS, (1), MANY, none, {}, [tls tls_paths ticket_keys], "A file of 48 or 80 random bytes that tickets are encrypted with (several: the first encrypts, all decrypt), for groups of machines. Without it the master makes keys and changes them.";
    "ssl_session_ticket_rotation" "time", H, (1), ONCE, "12h", {}, [http time ticket_rotation], "How long one key of the master encrypts tickets; a ticket can be resumed for at least this and at most twice this time, and never longer than `ssl_session_timeout` (kp's own).";
    "ssl_session_timeout" "time", HS, (1), ONCE, "5m", {}, [tls time session_timeout], "How long a session can be resumed.";
    "ssl_verify_client" "on | off | optional | optional_no_ca", HS, (1), ONCE, "off", {}, [tls verify_client verify_client], "Whether clients must (`on`) or may have a certificate that a trusted one vouches for; with `optional_no_ca` it may be vouched for by anyone. What was found is in `$ssl_client_verify`.";
    "ssl_client_certificate" "file", HS, (1), ONCE, none, {}, [tls tls_path client_certificate], "Certificates that may vouch for clients, PEM; their names are told to clients.";
    "ssl_trusted_certificate" "file", HS, (1), ONCE, none, {}, [tls tls_path trusted_certificate], "The same without telling them to clients.";
    "ssl_verify_depth" "number", HS, (1), ONCE, "1", {}, [tls number verify_depth], "How many certificates may stand between a client's own and the trusted one.";
    "ssl_crl" "file", HS, (1), ONCE, none, {}, [tls tls_path crl], "Certificates of clients that were revoked, PEM.";
    "ssl_stapling" "on | off", HS, (1), ONCE, "off", {}, [tls flag stapling], "Whether the response of `ssl_stapling_file` is stapled; kp does not ask a responder.";
    "ssl_stapling_file" "file", HS, (1), ONCE, none, {}, [tls tls_path stapling_file], "An OCSP response, DER.";

    "location" "[= | ~ | ~* | ^~] uri { ... } | @name { ... }", SL, (1 to 2), MANY, none, {of L}, [block], "Settings for requests by their path.";
    "if" "(condition) { ... }", SL, (1+), MANY, none, {of REWRITE}, [block], "Settings and rewrite instructions for requests that meet the condition.";
    "set" "$variable value", REWRITE, (2), MANY, none, {}, [rewrite set], "Sets a variable.";
    "rewrite" "regex replacement [last | break | redirect | permanent]", REWRITE, (2 to 3), MANY, none, {}, [rewrite rewrite], "Changes the path of requests that match.";
    "return" "code [text] | code url | url", REWRITE, (1 to 2), MANY, none, {}, [rewrite return_], "Answers at once; 444 closes the connection without an answer.";
    "break" "", REWRITE, (0), MANY, none, {}, [rewrite break_], "Ends the rewrite instructions of this level.";
    "internal" "", L, (0), ONCE, none, {}, [location with internal], "The location is for internal redirects only; to a client it is 404.";
    "proxy_pass" "url", LI, (1), ONCE, none, {}, [location with proxy_pass], "Where requests are sent: `http://` or `https://` and a group, a host or `unix:path:`, with or without a URI, with or without variables.";
    "metrics" "", L, (0), ONCE, none, {}, [location with metrics], "Answers with everything that is counted, for Prometheus (kp's own). Without `allow` and `deny` only clients on this machine get it.";
    "stub_status" "", SL, (0 to 1), ONCE, none, {}, [location with stub_status], "Answers with nginx's page of numbers: connections, requests, and what connections do; of all workers together. `allow` and `deny` say who may read it.";
    "status" "", L, (0), ONCE, none, {}, [location with status], "Serves a page that shows how kp is and keeps itself current: workers, upstreams and their peers, limits, reasons, certificates, and the last hour in curves. Where the URI ends in `.json`, or with `?format=json`, the same as JSON. Without `allow` and `deny` in force only clients on this machine get it (kp's own).";
    "health" "[upstream=name]", L, (0 to 1), ONCE, none, {}, [location with health], "Answers `ok`, or 503 and why not: kp is about to end, the worker that answers has used up its `worker_memory`, or the group has no peer that can be used (kp's own).";
    "health_check" "[interval=time] [jitter=time] [fails=number] [passes=number] [uri=path] [port=number] [match=name] [mandatory [persistent]] [type=http|tcp]", L, (0+), MANY, none, {}, [location with health_check], "Checks the servers of the upstream that the location passes to: interval=5s, jitter=0, fails=1, passes=1, uri=/ unless said otherwise. A server that fails gets no requests; with `mandatory` none before its first pass.";
    "alias" "path", L, (1), ONCE, none, {}, [location with alias], "The path that stands for the location's prefix when files are served.";
    "root" "path", HSLI, (1), ONCE, "html", {}, [level root root], "The directory that files are served from; the request's path is appended.";
    "index" "file ...", HSL, (1+), MANY, "index.html", {}, [level templates index], "Files tried for a path that ends with a slash; an absolute one is an internal redirect.";
    "default_type" "type", HSL, (1), ONCE, "text/plain", {}, [level string default_type], "The media type of files with an extension that `types` does not name.";
    "types" "{ ... }", HSL, (0), MANY, "text/html html; image/gif gif; image/jpeg jpg;", {entries Contexts::TYPES}, [block], "Media types by file extension.";
    "keepalive_timeout" "time [header_time]", HSL, (1 to 2), ONCE, "75s", {}, [level keepalive_timeout keepalive_timeout], "How long an idle client connection is kept; 0 turns keep-alive off. The second value is announced in `Keep-Alive`.";
    "keepalive_requests" "number", HSL, (1), ONCE, "1000", {}, [level number keepalive_requests], "The most requests on one client connection.";
    "keepalive_time" "time", HSL, (1), ONCE, "1h", {}, [level time keepalive_time], "The age after which a client connection is not kept any more.";
    "keepalive_min_timeout" "time", HSL, (1), ONCE, "10s", {}, [level time keepalive_min_timeout], "How long a worker that stops gracefully still serves idle client connections, from the start of the drain.";
    "keepalive_disable" "none | msie6 | safari ...", HSL, (1+), MANY, "msie6", {}, [level keepalive_disable keepalive_disable], "Browsers that get no keep-alive.";
    "client_body_timeout" "time", HSL, (1), ONCE, "60s", {}, [level time client_body_timeout], "The longest pause between two reads of a request body.";
    "client_max_body_size" "size", HSL, (1), ONCE, "1m", {}, [level size client_max_body_size], "The longest request body; more is 413, 0 is no limit.";
    "client_body_buffer_size" "size", HSL, (1), ONCE, "16k", {}, [level positive_size client_body_buffer_size], "The memory for a request body that is taken whole.";
    "client_body_temp_path" "path [level1 [level2 [level3]]]", HSL, (1 to 4), ONCE, "client_body_temp", {}, [level temp_path client_body_temp_path], "Where request bodies that do not fit the memory are kept; the levels have no effect. Without `-p` the default is in `/var/lib/kp`.";
    "client_body_in_file_only" "on | clean | off", HSL, (1), ONCE, "off", {}, [level body_in_file client_body_in_file_only], "Whether every request body is written to a file, which stays (`on`) or is removed (`clean`).";
    "limit_req_zone" "key zone=name:size rate=rate", H, (3), MANY, none, {}, [http with limit_req_zone], "A zone that counts how often each key is seen, in shared memory; the rate is as 10r/s or 30r/m. An empty key is not counted.";
    "limit_req" "zone=name [burst=number] [nodelay | delay=number]", HSL, (1 to 3), MANY, none, {}, [level limit_req rates], "Limits the rate of requests with one key: those over it wait, those over `burst` are refused; with `nodelay` none waits, with `delay=` only those over that. Several limits hold together.";
    "limit_req_status" "code", HSL, (1), ONCE, "503", {}, [level limit_status rates_status], "The status of requests that `limit_req` refuses. 408, 444 and 499 close the connection without an answer.";
    "limit_req_log_level" "info | notice | warn | error", HSL, (1), ONCE, "error", {}, [level limit_level rates_log_level], "How loud a refusal is in the error log; a delay is one level less.";
    "limit_req_dry_run" "on | off", HSL, (1), ONCE, "off", {}, [level flag rates_dry_run], "With `on` no request is refused or delayed; the log and `$limit_req_status` say what would be.";
    "limit_req_retry_after" "on | off", HSL, (1), ONCE, "off", {}, [level flag rates_retry_after], "Whether a refusal says with `Retry-After` in how many seconds a request would pass (kp's own).";
    "limit_conn_zone" "key zone=name:size", H, (2), MANY, none, {}, [http with limit_conn_zone], "A zone that counts how many requests of each key are being worked on, in shared memory. An empty key is not counted.";
    "limit_conn" "zone number", HSL, (2), MANY, none, {}, [level limit_conn places], "Limits how many requests with one key are worked on at a time; a connection counts from its request's head to the end of the answer.";
    "limit_conn_status" "code", HSL, (1), ONCE, "503", {}, [level limit_status places_status], "The status of requests that `limit_conn` refuses. 408, 444 and 499 close the connection without an answer.";
    "limit_conn_log_level" "info | notice | warn | error", HSL, (1), ONCE, "error", {}, [level limit_level places_log_level], "How loud a refusal is in the error log.";
    "limit_conn_dry_run" "on | off", HSL, (1), ONCE, "off", {}, [level flag places_dry_run], "With `on` no request is refused; the log and `$limit_conn_status` say which would be.";
    "limit_accept" "zone=name:size rate=rate [burst=number] | off", HS, (1 to 3), ONCE, "off", {}, [early with limit_accept], "Limits how often a client address (of IPv6 its /64 network) may connect to the addresses whose default server this is: what is over rate and burst is closed at once, before TLS (kp's own).";
    "limit_except" "method ... { ... }", L, (1+), ONCE, none, {of Contexts::LIMIT_EXCEPT}, [block], "Other `allow` and `deny` for requests with other methods than these; GET is HEAD as well. For such requests the location's rewrite instructions are skipped, as in nginx.";
    "max_active_requests" "number", H, (1), ONCE, "0", {}, [http number max_active_requests], "The most requests that all workers work on at a time, tunnels included; one more is answered 503 with `Retry-After`; 0 is no limit (kp's own).";
    "metrics" "on | off", H, (1), ONCE, "on", {}, [http flag metrics], "Whether requests are also counted by virtual host, and attempts by upstream group and peer. With `off` only what is counted for kp as a whole is left, and the pages know nothing of peers (kp's own).";
    "allow" "address | network | unix: | all", HSLX, (1), MANY, none, {}, [level allow access], "Admits clients. Of `allow` and `deny` on the nearest level that has any the first that fits decides.";
    "deny" "address | network | unix: | all", HSLX, (1), MANY, none, {}, [level deny access], "Refuses clients with 403.";
    "limit_rate" "rate", HSLI, (1), ONCE, "0", {}, [level evaluated_size response_rate], "How many bytes a second of an answer are sent to a client; 0 is no limit. `set $limit_rate` and `X-Accel-Limit-Rate` go before it.";
    "limit_rate_after" "size", HSLI, (1), ONCE, "0", {}, [level evaluated_size response_rate_after], "How many bytes are sent before `limit_rate` holds.";
    "send_timeout" "time", HSL, (1), ONCE, "60s", {}, [level time send_timeout], "The longest pause between two writes to a client.";
    "client_min_rate" "off | rate [window=time]", HSL, (1 to 2), ONCE, "off", {}, [level min_rate client_min_rate], "The fewest bytes a second in which a client may send a request body; judged after each window (5s) of waiting for it, the first excepted (kp's own).";
    "send_min_rate" "off | rate [window=time]", HSL, (1 to 2), ONCE, "off", {}, [level min_rate send_min_rate], "The fewest bytes a second in which a client may take an answer that waits for it; judged likewise (kp's own).";
    "reset_timedout_connection" "on | off", HSL, (1), ONCE, "off", {}, [level flag reset_timedout_connection], "Whether a connection that timed out is reset, which frees its memory at once.";
    "lingering_close" "on | off | always", HSL, (1), ONCE, "on", {}, [level lingering_close lingering_close], "Whether kp still reads from a client after the answer before it closes.";
    "lingering_time" "time", HSL, (1), ONCE, "30s", {}, [level time lingering_time], "How long that goes on at most.";
    "lingering_timeout" "time", HSL, (1), ONCE, "5s", {}, [level time lingering_timeout], "The longest pause between two of these reads.";
    "tcp_nodelay" "on | off", HSL, (1), ONCE, "on", {}, [level flag tcp_nodelay], "TCP_NODELAY on client connections.";
    "server_tokens" "on | off | build | string", HSL, (1), ONCE, "on", {}, [level server_tokens server_tokens], "What `Server` says: name and version, the name alone, or a text of your own; an empty text removes the field.";
    "chunked_transfer_encoding" "on | off", HSL, (1), ONCE, "on", {}, [level flag chunked_transfer_encoding], "Whether answers of unknown length are chunked for HTTP/1.1 clients.";
    "absolute_redirect" "on | off", HSL, (1), ONCE, "on", {}, [level flag absolute_redirect], "Whether redirects made by kp name scheme and host.";
    "port_in_redirect" "on | off", HSL, (1), ONCE, "on", {}, [level flag port_in_redirect], "Whether they name the port.";
    "server_name_in_redirect" "on | off", HSL, (1), ONCE, "off", {}, [level flag server_name_in_redirect], "Whether they name the first `server_name` instead of the request's host.";
    "error_page" "code ... [=[answer]] uri", HSLI, (2+), MANY, none, {}, [level error_page error_pages], "Where errors are answered from: a URI, a URL or a named location.";
    "recursive_error_pages" "on | off", HSL, (1), ONCE, "off", {}, [level flag recursive_error_pages], "Whether an error page may have error pages.";
    "set_real_ip_from" "address | CIDR | unix: | name", HSL, (1), MANY, none, {}, [level real_ip_from real_ip_from], "Whose word about the client's address is taken. A level with its own inherits none.";
    "real_ip_header" "field | proxy_protocol", HSL, (1), ONCE, "X-Real-IP", {}, [level real_ip_header real_ip_header], "Where the client's address is found. The lines of `X-Forwarded-For` and the elements of `Forwarded` (RFC 7239) are one list; of any other field the first line is read. `proxy_protocol`: what the PROXY header of the connection says.";
    "real_ip_recursive" "on | off", HSL, (1), ONCE, "off", {}, [level flag real_ip_recursive], "`off`: the last address of the list; `on`: the last one that is not itself trusted.";
    "add_header" "name value [always]", HSLI, (2 to 3), MANY, none, {}, [level add_header add_headers], "Adds a field to answers with status 200, 201, 204, 206, 301, 302, 303, 304, 307 or 308, with `always` to any. A level with its own inherits none.";
    "add_trailer" "name value [always]", HSLI, (2 to 3), MANY, none, {}, [level add_header add_trailers], "The same as a trailer, after a chunked body.";
    "early_hints" "string ...", HSL, (1+), ONCE, none, {}, [level arguments early_hints], "Passes 103 answers on when any of the values is neither empty nor 0.";
    "access_log" "off | path | stderr | syslog:server=address[,parameter=value] [format [buffer=size] [gzip[=level]] [flush=time] [if=condition]]", HSLI, (1+), MANY, "access.log combined", {}, [level access_log access_logs], "Where requests are logged. A path may contain variables; without `buffer=` each line is in the file at once. `docs/logs.md` tells more.";
    "error_log" "file | stderr | syslog:server=address[,parameter=value] [level] [format=text|json]", HSL, (1 to 3), MANY, none, {}, [level error_log error_log], "Where messages about requests go; without it where those of the level above go.";
    "open_log_file_cache" "off | max=number [inactive=time] [min_uses=number] [valid=time]", HSL, (1 to 4), ONCE, "off", {}, [level open_log_file_cache open_log_file_cache], "Which files of `access_log` paths with variables stay open: up to `max`, those that were used `min_uses` times (1) within `inactive` (10s); after `valid` (60s) it is looked whether the name still means the same file. With `off` a file is opened for each line.";
    "log_not_found" "on | off", HSL, (1), ONCE, "on", {}, [level flag log_not_found], "Whether a file that was not found is an error log message.";
    "kp_reason_header" "on | off", HSL, (1), ONCE, "off", {}, [level flag kp_reason_header], "Whether an answer that kp makes by itself says why in `X-Kp-Reason`, with the word of `$kp_reason`; an upstream's field of that name is removed then (kp's own).";
    "request_id_header" "field | off", HSL, (1), ONCE, "X-Request-ID", {}, [level request_id_header request_id_header], "Where those whose word is taken say `$request_id`: addresses of `set_real_ip_from`, without one everybody under `proxy_forwarding append`. What is not 1 to 128 letters, digits and `-_.:+/=@~` is not taken; `off`: nobody's is (kp's own).";
    "trace_context" "propagate | start | off", HSL, (1), ONCE, "propagate", {}, [level trace_context trace_context], "What upstreams get of the client's W3C trace context (`traceparent`, `tracestate`): what came, unchanged; a span of kp's in the client's trace, or in a new one where none valid came; nothing (kp's own).";
    "log_subrequest" "on | off", HSL, (1), ONCE, "off", {}, [level flag log_subrequest], "Whether subrequests are in the access log.";

    "resolver" "address ... [valid=time] [ipv4=on|off] [ipv6=on|off]", HSL, (1+), ONCE, none, {}, [level resolver resolver], "Name servers, asked in turn, for names in variables of `proxy_pass` and for servers with `resolve`. Without it names in variables are asked for at those of the system.";
    "resolver_timeout" "time", HSL, (1), ONCE, "30s", {}, [level time resolver_timeout], "How long a lookup of a name may take.";

    "proxy_set_header" "field value", HSL, (2), MANY, "Host $proxy_host; Connection \"\"", {}, [level set_header set_headers], "A field of the request that is sent to the upstream; an empty value removes it. A level with its own inherits none.";
    "proxy_pass_header" "field", HSL, (1), MANY, none, {}, [level field_name pass_headers], "Passes a field of the upstream's answer that is hidden by default.";
    "proxy_hide_header" "field", HSL, (1), MANY, "Date Server X-Pad X-Accel-*", {}, [level field_name hide_headers], "Hides a field of the upstream's answer.";
    "proxy_ignore_headers" "field ...", HSL, (1+), MANY, none, {}, [level ignore_headers ignore_headers], "Fields of the upstream's answer that kp does not act on: X-Accel-Redirect, X-Accel-Expires, X-Accel-Limit-Rate, X-Accel-Buffering, X-Accel-Charset, Expires, Cache-Control, Set-Cookie, Vary.";
    "proxy_http_version" "1.0 | 1.1", HSL, (1), ONCE, "1.1", {}, [level http_version http_version], "The HTTP version spoken to upstreams.";
    "proxy_connect_timeout" "time", HSL, (1), ONCE, "60s", {}, [level time connect_timeout], "How long a connection to an upstream may take.";
    "proxy_send_timeout" "time", HSL, (1), ONCE, "60s", {}, [level time proxy_send_timeout], "The longest pause between two writes to an upstream.";
    "proxy_read_timeout" "time", HSL, (1), ONCE, "60s", {}, [level time read_timeout], "How long a response head may take once the request is sent, and the longest pause between two reads of a body.";
    "proxy_next_upstream" "error | timeout | invalid_header | http_500 | http_502 | http_503 | http_504 | http_403 | http_404 | http_429 | non_idempotent | updating | off ...", HSL, (1+), MANY, "error timeout", {}, [level next_upstream next_upstream], "When a request is passed to the next server.";
    "proxy_next_upstream_tries" "number", HSL, (1), ONCE, "0", {}, [level number next_upstream_tries], "The most servers tried for a request; 0 is no limit.";
    "proxy_try_timeout" "time", HSL, (1), ONCE, "0", {}, [level time try_timeout], "How long one server may take, from the moment it is chosen to its response head; then the next one is tried as after a timeout. 0 is no limit (kp's own).";
    "proxy_retry_backoff" "[base=time] [max=time] | off", HSL, (1 to 2), ONCE, "base=25ms max=250ms", {}, [level retry_backoff retry_backoff], "The pause before a third and every further attempt, and before a server is asked again that was tried already: a random time up to `base`, doubled each time up to `max` (kp's own).";
    "proxy_next_upstream_timeout" "time", HSL, (1), ONCE, "0", {}, [level time next_upstream_timeout], "How long further servers are tried; 0 is no limit.";
    "proxy_buffering" "on | off", HSL, (1), ONCE, "on", {}, [level flag buffering], "Whether the upstream's answer is read ahead of a slow client, up to `proxy_buffers`.";
    "proxy_buffer_size" "size", HSL, (1), ONCE, "4k", {}, [level positive_size buffer_size], "The first buffer of the head of an upstream's answer; it grows to 64k.";
    "proxy_buffers" "number size", HSL, (2), ONCE, "8 4k", {}, [level buffers buffers], "How far an answer is read ahead of a slow client.";
    "proxy_busy_buffers_size" "size", HSL, (1), ONCE, "8k", {}, [level size busy_buffers_size], "How much of that may be on its way to the client.";
    "proxy_max_temp_file_size" "size", HSL, (1), ONCE, "0", {}, [level size max_temp_file_size], "How much of an answer may be kept in a file for a slow client; 0 is nothing (nginx's default is 1024m).";
    "proxy_temp_file_write_size" "size", HSL, (1), ONCE, "8k", {}, [level size temp_file_write_size], "How much is written to that file at a time.";
    "proxy_temp_path" "path [level1 [level2 [level3]]]", HSL, (1 to 4), ONCE, "proxy_temp", {}, [level temp_path proxy_temp_path], "Where these files are; the levels have no effect. Without `-p` the default is in `/var/lib/kp`.";
    "proxy_request_buffering" "on | off | auto", HSL, (1), ONCE, "auto", {}, [level request_buffering request_buffering], "Whether a request body is taken whole before a server is chosen; `auto` (kp's own): when its Content-Length fits `client_body_buffer_size` or the configuration reads `$request_body`. Of a longer one so much is awaited, of a chunked one the first byte. With `off`, `$request_body` has only a body that came together with its head.";
    "proxy_ignore_client_abort" "on | off", HSL, (1), ONCE, "off", {}, [level flag ignore_client_abort], "Whether a request goes on when its client went away.";
    "proxy_intercept_errors" "on | off", HSL, (1), ONCE, "off", {}, [level flag intercept_errors], "Whether answers of 300 and above go through `error_page`.";
    "proxy_redirect" "default | off | redirect replacement", HSL, (1 to 2), MANY, "default", {}, [level proxy_redirect redirects], "Replaces the beginning of `Location` and `Refresh` in the upstream's answer.";
    "proxy_cookie_domain" "off | domain replacement", HSL, (1 to 2), MANY, "off", {}, [level cookie_domain cookie_domains], "Replaces the domain in `Set-Cookie` of the upstream's answer.";
    "proxy_cookie_path" "off | path replacement", HSL, (1 to 2), MANY, "off", {}, [level cookie_path cookie_paths], "Replaces the path in `Set-Cookie` of the upstream's answer.";
    "proxy_cookie_flags" "off | cookie [flag ...]", HSL, (1 to 4), MANY, "off", {}, [level cookie_flags cookie_flags], "Sets or removes flags in `Set-Cookie` of the upstream's answer: secure, httponly, samesite=strict|lax|none, nosecure, nohttponly, nosamesite.";
    "proxy_bind" "address [transparent] | off", HSL, (1 to 2), ONCE, "off", {}, [level bind bind], "The local address of connections to upstreams.";
    "proxy_socket_keepalive" "on | off", HSL, (1), ONCE, "off", {}, [level flag socket_keepalive], "SO_KEEPALIVE on connections to upstreams.";
    "proxy_protocol" "on | off | v1 | v2", HSL, (1), ONCE, "off", {}, [level proxy_protocol proxy_protocol], "Whether connections to upstreams begin with a PROXY header that names the client (kp's own in http; `on` is version 1). Such a connection serves one request, so that no client's requests come under another's name.";
    "proxy_method" "method", HSL, (1), ONCE, none, {}, [level template method], "The method sent to the upstream instead of the client's.";
    "proxy_set_body" "value", HSL, (1), ONCE, none, {}, [level template set_body], "The body sent to the upstream instead of the client's.";
    "proxy_pass_request_headers" "on | off", HSL, (1), ONCE, "on", {}, [level flag pass_request_headers], "Whether the client's header fields are sent to the upstream.";
    "proxy_pass_request_body" "on | off", HSL, (1), ONCE, "on", {}, [level flag pass_request_body], "Whether the client's body is sent to the upstream.";
    "proxy_pass_trailers" "on | off", HSL, (1), ONCE, "off", {}, [level flag pass_trailers], "Whether trailers of the upstream's answer are passed on.";
    "proxy_limit_rate" "rate", HSL, (1), ONCE, "0", {}, [level evaluated_size limit_rate], "How many bytes a second are read from the upstream; 0 is no limit.";
    "proxy_upgrade" "protocol ... | off", HSL, (1+), ONCE, "websocket", {}, [level upgrade upgrade], "Protocols a client may switch to through kp (kp's own).";
    "proxy_upgrade_timeout" "time", HSL, (1), ONCE, "1h", {}, [level time upgrade_timeout], "How long a switched connection may be idle (kp's own).";
    "proxy_forwarding" "edge | append | off", HSL, (1), ONCE, "off", {}, [level forwarding forwarding], "Adds X-Forwarded-For, -Proto, -Host and -Port, Forwarded, Via and X-Request-Id: `edge` replaces what the client sent, `append` extends it, where there is a `set_real_ip_from` only what those say whom it names (kp's own).";
    "proxy_ssl_server_name" "on | off", HSL, (1), ONCE, "off", {}, [level flag tls_server_name], "Whether upstreams with `https://` are told the name that is asked for (SNI).";
    "proxy_ssl_name" "name", HSL, (1), ONCE, "$proxy_host", {}, [level template tls_name], "That name, which the upstream's certificate must have, too.";
    "proxy_ssl_verify" "on | off", HSL, (1), ONCE, "off", {}, [level flag tls_verify], "Whether the upstream's certificate is verified.";
    "proxy_ssl_verify_depth" "number", HSL, (1), ONCE, "1", {}, [level number tls_verify_depth], "How many certificates may stand between the upstream's own and the trusted one.";
    "proxy_ssl_trusted_certificate" "file", HSL, (1), ONCE, none, {}, [level tls_path tls_trusted], "Certificates that may vouch for upstreams, PEM; without it those of the system.";
    "proxy_ssl_crl" "file", HSL, (1), ONCE, none, {}, [level tls_path tls_crl], "Certificates of upstreams that were revoked, PEM.";
    "proxy_ssl_certificate" "file", HSL, (1), ONCE, none, {}, [level tls_file tls_certificate], "kp's own certificate for upstreams that ask for one, PEM; may have variables.";
    "proxy_ssl_certificate_key" "file", HSL, (1), ONCE, none, {}, [level tls_file tls_key], "The key of `proxy_ssl_certificate`.";
    "proxy_ssl_certificate_cache" "off | max=number [inactive=time] [valid=time]", HSL, (1 to 3), ONCE, "off", {}, [level certificate_cache tls_certificate_cache], "As `ssl_certificate_cache`, for these two.";
    "proxy_ssl_password_file" "file", HSL, (1), ONCE, none, {}, [level tls_path tls_passwords], "Passwords of encrypted keys, one on a line.";
    "proxy_ssl_protocols" "[TLSv1.2] [TLSv1.3]", HSL, (1+), MANY, "TLSv1.2 TLSv1.3", {}, [level tls_protocols tls_protocols], "The versions of TLS spoken with upstreams. Older ones are left out with a warning.";
    "proxy_ssl_ciphers" "ciphers", HSL, (1), ONCE, "DEFAULT", {}, [level tls_ciphers tls_ciphers], "The cipher suites of TLSv1.2, as OpenSSL writes them. What kp does not have is left out with a warning.";
    "proxy_ssl_conf_command" "Ciphersuites suites", HSL, (2), MANY, none, {}, [level tls_command tls_commands], "The cipher suites of TLSv1.3 with upstreams, by name with `:` between them.";
    "proxy_ssl_session_reuse" "on | off", HSL, (1), ONCE, "on", {}, [level flag tls_session_reuse], "Whether sessions with upstreams are resumed.";
    "proxy_ssl_alpn" "protocol ...", HSL, (1+), ONCE, none, {}, [level alpn tls_alpn], "Protocols offered to the upstream, such as `http/1.1`; without it none are (kp's own in http).";

    "server" "address [weight=number] [max_conns=number] [max_fails=number] [fail_timeout=time] [slow_start=time] [route=string] [service=name] [backup] [down] [drain] [resolve]", U, (1+), MANY, none, {}, [upstream server], "A server of the group: `host[:port]` or `unix:path`, port 80 by default. A name with several addresses is several servers. With `resolve` the name is looked up while kp runs, whenever its answer runs out; with `service` hosts, ports, weights and priorities come from DNS (SRV).";
    "resolver" "address ... [valid=time] [ipv4=on|off] [ipv6=on|off]", U, (1+), ONCE, none, {}, [upstream resolver], "Name servers for the group's names with `resolve`; without it those of http.";
    "resolver_timeout" "time", U, (1), ONCE, "30s", {}, [upstream resolver_timeout], "How long a lookup of the group's names may take.";
    "zone" "name [size]", U, (1 to 2), ONCE, none, {}, [upstream zone], "Shares the state of the group's servers among the workers.";
    "state" "file", U, (1), ONCE, none, {}, [upstream state], "Where changes of the group made at run time are kept, so that they outlive a restart (kp's own form: the file holds the changes, not the servers).";
    "least_conn" "", U, (0), ONCE, none, {}, [upstream least_conn], "Chooses the server with the fewest connections by weight.";
    "ip_hash" "", U, (0), ONCE, none, {}, [upstream ip_hash], "Chooses by the client's address (its first three bytes with IPv4).";
    "hash" "key [consistent]", U, (1 to 2), ONCE, none, {}, [upstream hash], "Chooses by a key; `consistent` moves few keys when servers change (ketama).";
    "random" "[two [least_conn]]", U, (0 to 2), ONCE, none, {}, [upstream random], "Chooses by chance; with `two` the less loaded of two.";
    "least_time" "header | last_byte [inflight]", U, (1 to 2), ONCE, none, {}, [upstream least_time], "Chooses the server with the least average time to the head or the end of its answers, times its connections, by weight; with `inflight` attempts under way count, too.";
    "outlier_detection" "[consecutive_5xx=number] [failure_percent=number] [latency_factor=number] [base_time=time] [max_percent=number]", U, (1 to 5), ONCE, none, {}, [upstream outlier_detection], "Ejects servers that answer 5xx or fail so often in a row, or in such a share of at least 20 answers, or are so many times slower than the median, for `base_time` (30s) times how often they were ejected; at most `max_percent` (10) of the servers, or one (kp's own).";
    "max_ejected_percent" "number", U, (1), ONCE, none, {}, [upstream max_ejected_percent], "The most servers, in percent, that failures and outlier detection may take out at once; the last usable one, backups included, stays in any case. Without it all may be, as in nginx (kp's own).";
    "queue" "number [timeout=time]", U, (1 to 2), ONCE, none, {}, [upstream queue], "How many requests wait in each worker while every server has `max_conns` connections in use, and how long (60s); who comes then, or waited so long, gets 503.";
    "retry_budget" "[percent=number] [min=number] | off", U, (1 to 2), ONCE, "percent=20 min=10", {}, [upstream retry_budget], "How many repeated attempts may be under way at once: a share of all attempts under way in the group, and `min` in any case. What failed to connect and stale connections do not count. A retry beyond it is not made: the client gets the failure (kp's own).";
    "sticky" "cookie name [expires=time | max] [domain=string] [httponly] [samesite=strict | lax | none | $variable] [secure] [path=path] | route $variable ... | learn create=$variable lookup=$variable zone=name:size [timeout=time] [header]", U, (2+), ONCE, none, {}, [upstream sticky], "Keeps the requests of a session at one server: by a cookie that names it, by a server's `route=`, or by what responses were seen to begin.";
    "keepalive" "connections [local]", U, (1 to 2), ONCE, "32 local", {}, [upstream keepalive], "How many idle connections each worker keeps; `local`: each used again only from the location that opened it. 0 turns it off.";
    "keepalive_requests" "number", U, (1), ONCE, "1000", {}, [upstream keepalive_requests], "The most requests on one upstream connection.";
    "keepalive_time" "time", U, (1), ONCE, "1h", {}, [upstream keepalive_time], "The age after which an upstream connection is not kept any more.";
    "keepalive_timeout" "time", U, (1), ONCE, "60s", {}, [upstream keepalive_timeout], "How long an idle upstream connection is kept.";
}
