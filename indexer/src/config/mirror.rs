//! The section `mirror`.

use serde::Serialize;
use serde_yaml_ng::Value;

mod url;

use super::check::DURATION_MS;
use super::fields::{Fields, Problems};
use super::{Hidden, HostPort, PathBuf, defaults};
use url::Server;

/// Numbers of Redis databases.
const DATABASES: (u64, u64) = (0, 1 << 20);
/// Sentinels that are asked at the same time, and nodes to find a cluster by.
const ADDRESSES_MAX: usize = 64;

/// The Redis in which the state of event streams is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MirrorConfig {
    #[serde(flatten)]
    pub servers: RedisServers,
    /// With all of them, and with sentinels.
    pub tls: bool,
    /// Certificates, in PEM, of whom the servers' are believed to be by. None: those of the system.
    pub tls_ca_file: Option<PathBuf>,
    /// Our own certificate and its key, in PEM, where the servers ask for one.
    pub tls_cert_file: Option<PathBuf>,
    pub tls_key_file: Option<PathBuf>,
    pub database: u32,
    /// Of an ACL user; None: the default user.
    pub username: Option<String>,
    pub password: Option<Hidden>,
    /// Holds the password, alone; read at each connection.
    pub password_file: Option<PathBuf>,
    /// Begins every key. Indexers of one fleet share it, others must not.
    pub prefix: String,
    pub interval_ms: u64,
    pub expiry_ms: u64,
    /// Of each command.
    pub timeout_ms: u64,
}

/// Where Redis is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum RedisServers {
    One {
        redis: HostPort,
    },
    /// Some of its nodes.
    Cluster {
        cluster: Vec<HostPort>,
    },
    /// Who knows which server is the master now.
    Sentinels {
        sentinels: Vec<HostPort>,
        /// Its name among them.
        master: String,
        sentinel_username: Option<String>,
        sentinel_password_file: Option<PathBuf>,
    },
}

/// None: there is no mirror.
pub(super) fn section(mut fields: Fields, p: &mut Problems) -> Option<MirrorConfig> {
    let is_empty = fields.is_empty();
    let forms = ["redis", "cluster", "sentinels"].map(|key| (key, fields.has(key)));
    let server = server(&mut fields, p);
    let servers = servers(&mut fields, server.as_ref(), p);
    let mut written = forms.iter().filter(|(_, is_written)| *is_written).map(|(key, _)| *key);
    match (written.next(), written.next()) {
        (None, _) if !is_empty => p.note(
            &fields.path_of("redis"),
            None,
            "write host:port or a URL of a Redis server, or `cluster`, or `sentinels` with `master`; or leave `mirror` out",
        ),
        (Some(first), Some(second)) => {
            p.note(&fields.path_of(second), Some(&Value::from("too")), format!("{first} is written already; choose one"));
        }
        _ => {}
    }
    let url = server.unwrap_or(Server {
        address: HostPort::new("", 0),
        tls: None,
        database: None,
        username: None,
        password: None,
    });
    let database = database(&mut fields, &url, servers.as_ref(), p);
    let user = user(&mut fields, url.username, url.password, p);
    let tls = tls(&mut fields, url.tls, p);
    let times = times(&mut fields, p);
    let prefix = fields.text("prefix", p).unwrap_or_else(|| defaults::MIRROR_PREFIX.to_owned());
    if prefix.contains(['{', '}', ':', ' ']) {
        let found = Value::String(prefix.clone());
        p.note(&fields.path_of("prefix"), Some(&found), "expected no braces, colons or spaces");
    }
    fields.finish(p);
    Some(MirrorConfig {
        servers: servers?,
        tls: tls.is_on,
        tls_ca_file: tls.ca,
        tls_cert_file: tls.cert,
        tls_key_file: tls.key,
        database,
        username: user.name,
        password: user.password,
        password_file: user.password_file,
        prefix,
        interval_ms: times.interval_ms,
        expiry_ms: times.expiry_ms,
        timeout_ms: times.timeout_ms,
    })
}

/// `redis`.
fn server(fields: &mut Fields, p: &mut Problems) -> Option<Server> {
    let text = fields.text("redis", p)?;
    let server = url::server(&text);
    if let Err(remedy) = server {
        p.note(&fields.path_of("redis"), Some(&Value::String(url::without_user(&text))), remedy);
    }
    server.ok()
}

fn servers(fields: &mut Fields, server: Option<&Server>, p: &mut Problems) -> Option<RedisServers> {
    let one = server.map(|server| RedisServers::One { redis: server.address.clone() });
    let nodes = addresses(fields, "cluster", p);
    let cluster = (!nodes.is_empty()).then_some(RedisServers::Cluster { cluster: nodes });
    let sentinels = sentinels(fields, p);
    one.or(cluster).or(sentinels)
}

fn sentinels(fields: &mut Fields, p: &mut Problems) -> Option<RedisServers> {
    let is_written = fields.has("sentinels");
    let sentinels = addresses(fields, "sentinels", p);
    let has_master = fields.has("master");
    let master = fields.text("master", p);
    let sentinel_username = fields.text("sentinel_username", p);
    let sentinel_password_file = fields.text("sentinel_password_file", p).map(PathBuf::from);
    if is_written && !has_master {
        p.note(&fields.path_of("master"), None, "write the name under which the sentinels know the server");
    }
    for (key, found) in [
        ("master", master.as_deref()),
        ("sentinel_username", sentinel_username.as_deref()),
        ("sentinel_password_file", sentinel_password_file.as_deref().and_then(|path| path.to_str())),
    ] {
        if let (false, Some(found)) = (is_written, found) {
            p.note(&fields.path_of(key), Some(&Value::from(found)), "write `sentinels` too, or leave it out");
        }
    }
    let found = !sentinels.is_empty();
    found.then_some(RedisServers::Sentinels {
        sentinels,
        master: master?,
        sentinel_username,
        sentinel_password_file,
    })
}

fn addresses(fields: &mut Fields, key: &'static str, p: &mut Problems) -> Vec<HostPort> {
    let path = fields.path_of(key);
    let is_written = fields.has(key);
    let items = fields.list(key, p);
    if is_written && (items.is_empty() || items.len() > ADDRESSES_MAX) && !p.names(&path) {
        let found = Value::from(items.len());
        p.note(&path, Some(&found), format!("expected 1 to {ADDRESSES_MAX} addresses, host:port each"));
    }
    let parsed = items.into_iter().filter_map(|(path, item)| {
        let address = item.as_str().and_then(|text| text.parse().ok());
        if address.is_none() {
            let shown = item.as_str().map_or(item.clone(), |text| Value::String(url::without_user(text)));
            let remedy =
                "expected host:port; what a URL would say has keys of its own: tls, username, password_file";
            p.note(&path, Some(&shown), remedy);
        }
        address
    });
    parsed.collect()
}

fn database(fields: &mut Fields, url: &Server, servers: Option<&RedisServers>, p: &mut Problems) -> u32 {
    let is_written = fields.has("database");
    let database = fields.number("database", DATABASES, url.database.unwrap_or_default(), p);
    let found = Value::from(database);
    if is_written && url.database.is_some() {
        p.note(&fields.path_of("database"), Some(&found), "redis names one too; write it once");
    } else if database > DATABASES.1 {
        p.note(&fields.path_of("redis"), Some(&found), "there is no such database");
    } else if database > 0 && matches!(servers, Some(RedisServers::Cluster { .. })) {
        p.note(&fields.path_of("database"), Some(&found), "a cluster has database 0 only");
    }
    u32::try_from(database).unwrap_or_default()
}

struct User {
    name: Option<String>,
    password: Option<Hidden>,
    password_file: Option<PathBuf>,
}

/// `name`, `password`: what `redis` says of them.
fn user(fields: &mut Fields, name: Option<String>, password: Option<Hidden>, p: &mut Problems) -> User {
    let mut once = |is_here: bool, is_there: bool, key: &str, path: String| {
        if is_here && is_there {
            p.note(&path, Some(&Value::from("(hidden)")), format!("{key} is written twice; write it once"));
        }
    };
    let path = |key| fields.path_of(key);
    let is_written = |key| fields.has(key);
    once(is_written("username"), name.is_some(), "the user", path("username"));
    once(is_written("password"), password.is_some(), "the password", path("password"));
    let is_known = password.is_some() || is_written("password");
    once(is_written("password_file"), is_known, "the password", path("password_file"));
    let written = fields.text("username", p);
    let user = User {
        password: fields.hidden("password", p).or(password),
        password_file: fields.text("password_file", p).map(PathBuf::from),
        name: written.or(name),
    };
    if let (Some(name), None, None) = (&user.name, &user.password, &user.password_file) {
        let found = Value::String(name.clone());
        p.note(&fields.path_of("username"), Some(&found), "write password_file too");
    }
    user
}

struct Tls {
    is_on: bool,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// `by_url`: what the scheme says.
fn tls(fields: &mut Fields, by_url: Option<bool>, p: &mut Problems) -> Tls {
    let is_written = fields.has("tls");
    let written = fields.flag("tls", p);
    if let (true, Some(other)) = (is_written, by_url.filter(|url| *url != written)) {
        let scheme = if other { "rediss" } else { "redis" };
        let remedy = format!("redis is written with {scheme}://; rediss:// means TLS and redis:// none");
        p.note(&fields.path_of("tls"), Some(&Value::from(written)), remedy);
    }
    let mut file = |key, p: &mut Problems| fields.text(key, p).map(PathBuf::from);
    let tls = Tls {
        is_on: written || by_url == Some(true),
        ca: file("tls_ca_file", p),
        cert: file("tls_cert_file", p),
        key: file("tls_key_file", p),
    };
    let files = [("tls_ca_file", &tls.ca), ("tls_cert_file", &tls.cert), ("tls_key_file", &tls.key)];
    for (key, file) in files {
        if let (false, Some(file)) = (tls.is_on, file) {
            let found = Value::String(file.display().to_string());
            p.note(&fields.path_of(key), Some(&found), "write `tls: true` too, or a URL with rediss://");
        }
    }
    for (here, other) in [
        (("tls_cert_file", &tls.cert), ("tls_key_file", &tls.key)),
        (("tls_key_file", &tls.key), ("tls_cert_file", &tls.cert)),
    ] {
        if let (Some(file), None) = (here.1, other.1) {
            let found = Value::String(file.display().to_string());
            p.note(&fields.path_of(here.0), Some(&found), format!("write {} too", other.0));
        }
    }
    tls
}

struct Times {
    interval_ms: u64,
    expiry_ms: u64,
    timeout_ms: u64,
}

fn times(fields: &mut Fields, p: &mut Problems) -> Times {
    let interval_ms = fields.number("interval_ms", DURATION_MS, defaults::MIRROR_INTERVAL_MS, p);
    let expiry_ms = fields.number("expiry_ms", DURATION_MS, defaults::MIRROR_EXPIRY_MS, p);
    if expiry_ms < interval_ms.saturating_mul(2) {
        let found = Value::from(expiry_ms);
        p.note(&fields.path_of("expiry_ms"), Some(&found), "expected at least twice interval_ms");
    }
    let timeout_ms = fields.number("timeout_ms", DURATION_MS, defaults::MIRROR_TIMEOUT_MS, p);
    Times { interval_ms, expiry_ms, timeout_ms }
}
