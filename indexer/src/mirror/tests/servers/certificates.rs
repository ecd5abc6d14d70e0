//! An authority, and certificates of a server and a client by it, made for one test.

use std::path::PathBuf;
use std::process::Command;

use super::Folder;

pub(crate) struct Certificates(Folder);

// === impl Certificates ===

impl Certificates {
    pub(crate) fn make() -> Self {
        let folder = Folder::new();
        folder.write("names", "subjectAltName = IP:127.0.0.1, DNS:localhost\n");
        let made = Self(folder);
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let authority =
            ["-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"];
        made.openssl(&[&["req"][..], &key, &authority].concat());
        for name in ["server", "client"] {
            let (subject, own_key) = (format!("/CN={name}"), format!("{name}.key"));
            let (request, certificate) = (format!("{name}.csr"), format!("{name}.pem"));
            let asked = ["-subj", &subject, "-keyout", &own_key, "-out", &request];
            made.openssl(&[&["req"][..], &key, &asked].concat());
            let signed =
                ["x509", "-req", "-in", &request, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
            made.openssl(&[&signed[..], &["-days", "2", "-extfile", "names", "-out", &certificate]].concat());
        }
        made
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Lines of the configuration of a server that speaks TLS only, with clients, replicas and other nodes.
    pub(super) fn server(&self, port: u16) -> Vec<String> {
        let files = [("cert", "server.pem"), ("key", "server.key"), ("ca-cert", "ca.pem")];
        let files = files.map(|(key, file)| format!("tls-{key}-file {}", self.file(file).display()));
        let lines = ["port 0".to_owned(), format!("tls-port {port}")];
        let ways = ["tls-replication yes".to_owned(), "tls-cluster yes".to_owned()];
        lines.into_iter().chain(ways).chain(files).collect()
    }

    /// Arguments of `redis-cli` for such a server.
    pub(super) fn cli(&self) -> Vec<String> {
        let files = [("--cacert", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key")];
        let files =
            files.into_iter().flat_map(|(key, file)| [key.to_owned(), self.file(file).display().to_string()]);
        std::iter::once("--tls".to_owned()).chain(files).collect()
    }

    /// Settings of a mirror that asks such a server.
    pub(crate) fn settings(&self) -> String {
        let files = [("ca", "ca.pem"), ("cert", "client.pem"), ("key", "client.key")];
        let files = files.map(|(key, file)| format!(", tls_{key}_file: {}", self.file(file).display()));
        format!("tls: true{}", files.concat())
    }

    fn openssl(&self, arguments: &[&str]) {
        let output = Command::new("openssl").args(arguments).current_dir(self.0.path()).output();
        let output = output.expect("openssl is installed (`make setup`)");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
