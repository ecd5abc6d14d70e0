//! How to reach one Redis server, one sentinel or a cluster: the settings with the files that they name.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::cluster::ClusterClientBuilder;
use ::redis::cluster_async::ClusterConnection;
use ::redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, TlsCertificates, TlsMode,
};

use super::super::store::StoreError;
use crate::config::{Config, ConfigError, Hidden, HostPort, MirrorConfig, Problem, RedisServers};

/// How often a cluster's client tries a command anew that met a node without its slot, or none; all of them within the
/// time of the command.
const CLUSTER_RETRIES: u32 = 4;
/// The longest pause between those, in milliseconds.
const CLUSTER_PAUSE_MS: u64 = 50;
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct RedisAccess {
    servers: RedisServers,
    database: u32,
    user: Credentials,
    /// For sentinels.
    sentinel_user: Credentials,
    tls: Option<TlsCertificates>,
    timeout: Duration,
}

#[derive(Clone, Debug, Default)]
struct Credentials {
    username: Option<String>,
    password: Option<Password>,
}

#[derive(Clone, Debug)]
enum Password {
    Written(Hidden),
    /// Read at each connection, so that it can be changed.
    File(PathBuf),
}

// === impl RedisAccess ===

impl RedisAccess {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// Every file that cannot be used, with the key that names it.
    pub fn read(config: &MirrorConfig) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        let tls = config.tls.then(|| certificates(config, &mut problems));
        let mut check = |key: &str, file: Option<&PathBuf>| {
            if let Some(file) = file {
                read(key, file, &mut problems);
            }
        };
        check("password_file", config.password_file.as_ref());
        let mut sentinel_user = Credentials::default();
        if let RedisServers::Sentinels { sentinel_username, sentinel_password_file, .. } = &config.servers {
            check("sentinel_password_file", sentinel_password_file.as_ref());
            sentinel_user.username.clone_from(sentinel_username);
            sentinel_user.password = sentinel_password_file.clone().map(Password::File);
        }
        if !problems.is_empty() {
            return Err(ConfigError::Invalid { file: None, problems });
        }
        let written = config.password.clone().map(Password::Written);
        Ok(Self {
            servers: config.servers.clone(),
            database: config.database,
            user: Credentials {
                username: config.username.clone(),
                password: written.or(config.password_file.clone().map(Password::File)),
            },
            sentinel_user,
            tls,
            timeout: Duration::from_millis(config.timeout_ms),
        })
    }

    /// Of each command, and of each attempt to connect.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn servers(&self) -> &RedisServers {
        &self.servers
    }

    pub(super) async fn server(&self, address: &HostPort) -> Result<MultiplexedConnection, StoreError> {
        let settings = self.user.settings().await?.set_db(self.database.into());
        self.open(self.info(address)?.set_redis_settings(settings)).await
    }

    pub(super) async fn sentinel(&self, address: &HostPort) -> Result<MultiplexedConnection, StoreError> {
        let settings = self.sentinel_user.settings().await?;
        self.open(self.info(address)?.set_redis_settings(settings)).await
    }

    async fn open(&self, info: ConnectionInfo) -> Result<MultiplexedConnection, StoreError> {
        let client = match &self.tls {
            Some(certificates) => Client::build_with_tls(info, certificates.clone())?,
            None => Client::open(info)?,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
    }

    pub(super) async fn cluster(&self, nodes: &[HostPort]) -> Result<ClusterConnection, StoreError> {
        let settings = self.user.settings().await?;
        let mut infos = Vec::with_capacity(nodes.len());
        for node in nodes {
            infos.push(self.info(node)?.set_redis_settings(settings.clone()));
        }
        let mut builder = ClusterClientBuilder::new(infos)
            .connection_timeout(self.timeout)
            .response_timeout(self.timeout)
            .retries(CLUSTER_RETRIES)
            .max_retry_wait(CLUSTER_PAUSE_MS);
        if let Some(certificates) = &self.tls {
            builder = builder.tls(TlsMode::Secure).certs(certificates.clone());
        }
        Ok(builder.build()?.get_async_connection().await?)
    }

    fn info(&self, address: &HostPort) -> Result<ConnectionInfo, StoreError> {
        let (host, port) = (address.host().to_owned(), address.port());
        let address = match self.tls {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        };
        Ok(address.into_connection_info()?)
    }
}

// === impl Credentials ===

impl Credentials {
    async fn settings(&self) -> Result<RedisConnectionInfo, StoreError> {
        // One command less that an ACL would have to allow.
        let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(username) = &self.username {
            settings = settings.set_username(username);
        }
        settings = match &self.password {
            None => settings,
            Some(Password::Written(password)) => settings.set_password(password.reveal()),
            Some(Password::File(file)) => {
                let read = tokio::fs::read_to_string(file).await;
                let text = read.map_err(|source| StoreError::Password { file: file.clone(), source })?;
                settings.set_password(text.trim_end())
            }
        };
        Ok(settings)
    }
}

fn certificates(config: &MirrorConfig, problems: &mut Vec<Problem>) -> TlsCertificates {
    let pem = |key: &str, file: &Option<PathBuf>, problems: &mut Vec<Problem>| {
        let file = file.as_ref()?;
        let bytes = read(key, file, problems)?;
        if key != "tls_key_file" && !bytes.windows(CERTIFICATE.len()).any(|part| part == CERTIFICATE) {
            problem(
                problems,
                key,
                file,
                "there is no certificate in it; expected PEM, which begins with -----BEGIN CERTIFICATE-----",
            );
            return None;
        }
        Some(bytes)
    };
    let root_cert = pem("tls_ca_file", &config.tls_ca_file, problems);
    let client_cert = pem("tls_cert_file", &config.tls_cert_file, problems);
    let client_key = pem("tls_key_file", &config.tls_key_file, problems);
    let client_tls = client_cert
        .zip(client_key)
        .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let certificates = TlsCertificates { client_tls, root_cert };
    if problems.is_empty() {
        check(&certificates, config, problems);
    }
    certificates
}

/// Whether the library takes them: each alone, so that the key at fault can be named.
fn check(certificates: &TlsCertificates, config: &MirrorConfig, problems: &mut Vec<Problem>) {
    let root = TlsCertificates { client_tls: None, ..certificates.clone() };
    let own = TlsCertificates { root_cert: None, ..certificates.clone() };
    for (key, file, part) in
        [("tls_ca_file", &config.tls_ca_file, root), ("tls_cert_file", &config.tls_cert_file, own)]
    {
        let Some(file) = file else { continue };
        let address = ConnectionAddr::TcpTls {
            host: "localhost".to_owned(),
            port: 1,
            insecure: false,
            tls_params: None,
        };
        if let Err(error) = Client::build_with_tls(address, part) {
            problem(
                problems,
                key,
                file,
                &format!("it cannot be used: {error}; expected PEM, with the key beside it"),
            );
        }
    }
}

fn read(key: &str, file: &Path, problems: &mut Vec<Problem>) -> Option<Vec<u8>> {
    match std::fs::read(file) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            let remedy =
                format!("it cannot be read: {error}; write the path of a file that this program may read");
            problem(problems, key, file, &remedy);
            None
        }
    }
}

fn problem(problems: &mut Vec<Problem>, key: &str, file: &Path, remedy: &str) {
    problems.push(Problem::new(format!("mirror.{key}"), file.display(), remedy));
}

impl Config {
    /// Reads what the mirror's settings name, where there is one.
    ///
    /// # Errors
    /// See [`RedisAccess::read`].
    pub fn redis_access(&self) -> Result<Option<RedisAccess>, ConfigError> {
        self.mirror.as_ref().map(RedisAccess::read).transpose()
    }
}
