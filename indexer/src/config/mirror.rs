//! The section `mirror`.

use serde_yaml_ng::Value;

use super::check::DURATION_MS;
use super::fields::{Fields, Problems};
use super::{HostPort, MirrorConfig, PathBuf, defaults};

/// Numbers of Redis databases.
const DATABASES: (u64, u64) = (0, 1 << 20);

/// None: there is no mirror.
pub(super) fn section(mut fields: Fields, p: &mut Problems) -> Option<MirrorConfig> {
    let is_empty = fields.is_empty();
    let redis: Option<HostPort> = fields.parsed("redis", "expected host:port of a Redis server", p);
    if redis.is_none() && !is_empty && !fields.has_problem("redis", p) {
        p.note(&fields.path_of("redis"), None, "write host:port of a Redis server, or leave `mirror` out");
    }
    let database = fields.number("database", DATABASES, 0, p);
    let username = fields.text("username", p);
    let password_file = fields.text("password_file", p).map(PathBuf::from);
    if let (Some(username), None) = (&username, &password_file) {
        let found = Value::String(username.clone());
        p.note(&fields.path_of("username"), Some(&found), "write password_file too");
    }
    let prefix = fields.text("prefix", p).unwrap_or_else(|| defaults::MIRROR_PREFIX.to_owned());
    if prefix.contains(['{', '}', ':', ' ']) {
        let found = Value::String(prefix.clone());
        p.note(&fields.path_of("prefix"), Some(&found), "expected no braces, colons or spaces");
    }
    let interval_ms = fields.number("interval_ms", DURATION_MS, defaults::MIRROR_INTERVAL_MS, p);
    let expiry_ms = fields.number("expiry_ms", DURATION_MS, defaults::MIRROR_EXPIRY_MS, p);
    if expiry_ms < interval_ms.saturating_mul(2) {
        let found = Value::from(expiry_ms);
        p.note(&fields.path_of("expiry_ms"), Some(&found), "expected at least twice interval_ms");
    }
    let timeout_ms = fields.number("timeout_ms", DURATION_MS, defaults::MIRROR_TIMEOUT_MS, p);
    fields.finish(p);
    Some(MirrorConfig {
        redis: redis?,
        database: u32::try_from(database).unwrap_or_default(),
        username,
        password_file,
        prefix,
        interval_ms,
        expiry_ms,
        timeout_ms,
    })
}
