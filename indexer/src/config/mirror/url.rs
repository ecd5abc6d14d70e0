//! A Redis server as one text: `host:port`, or a URL of the schemes `redis` and `rediss`.
//!
//! A URL says nothing that a key of its own could not, and what it says is put where those keys would be.

use redis::{ConnectionAddr, IntoConnectionInfo};

use super::super::{Hidden, HostPort};

/// What the text says. `None`: nothing of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) address: HostPort,
    pub(super) tls: Option<bool>,
    pub(super) database: Option<u64>,
    pub(super) username: Option<String>,
    pub(super) password: Option<Hidden>,
}

const FORM: &str = "expected host:port of a Redis server, or redis://[user[:password]@]host[:port][/database], or \
                    rediss:// for TLS";
const OPTIONS: &str = "options in a URL are not read; write them as keys of `mirror`";

/// The server, or the remedy.
pub(super) fn server(text: &str) -> Result<Server, &'static str> {
    let Some((scheme, rest)) = text.split_once("://") else {
        let address = text.parse().map_err(|_| FORM)?;
        return Ok(Server { address, tls: None, database: None, username: None, password: None });
    };
    if !matches!(scheme, "redis" | "rediss") {
        return Err(FORM);
    }
    if rest.contains(['?', '#']) {
        return Err(OPTIONS);
    }
    let info = text.into_connection_info().map_err(|_| FORM)?;
    let (host, port) = match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => (host, *port),
        _ => return Err(FORM),
    };
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.clone() };
    let settings = info.redis_settings();
    // Whether it was written: a database of 0 may be.
    let has_path = rest.split_once('/').is_some_and(|(_, path)| !path.is_empty());
    Ok(Server {
        address: HostPort::new(host, port),
        tls: Some(scheme == "rediss"),
        database: has_path.then(|| u64::try_from(settings.db()).map_err(|_| FORM)).transpose()?,
        username: settings.username().map(str::to_owned),
        password: settings.password().map(Hidden::new),
    })
}

/// The text without who it names and the password: what a message may quote.
pub(super) fn without_user(text: &str) -> String {
    match text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://(hidden)@{rest}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_what_keys_would() {
        let plain = server("h:1").unwrap();
        assert_eq!((plain.address.to_string().as_str(), plain.tls, plain.database), ("h:1", None, None));
        let full = server("rediss://me:s%40cret@[::1]:7/3").unwrap();
        assert_eq!(full.address.to_string(), "[::1]:7");
        assert_eq!((full.tls, full.database, full.username.as_deref()), (Some(true), Some(3), Some("me")));
        assert_eq!(full.password.unwrap().reveal(), "s@cret");
        let least = server("redis://h").unwrap();
        assert_eq!(
            (least.address.to_string().as_str(), least.tls, least.database),
            ("h:6379", Some(false), None)
        );
        assert_eq!((least.username, least.password), (None, None));
    }

    #[test]
    fn nothing_in_a_url_is_dropped_in_silence() {
        assert_eq!(server("redis://h:1/0?timeout=5"), Err(OPTIONS));
        assert_eq!(server("rediss://h:1#insecure"), Err(OPTIONS));
        for text in ["http://h:1", "unix:///tmp/redis", "redis://", "redis://h:1/x", "h", "h:0"] {
            assert_eq!(server(text), Err(FORM), "{text}");
        }
    }

    #[test]
    fn a_message_quotes_no_password() {
        assert_eq!(without_user("redis://me:s@cret@h:1?x"), "redis://(hidden)@h:1?x");
        assert_eq!(without_user("h:1"), "h:1");
    }
}
