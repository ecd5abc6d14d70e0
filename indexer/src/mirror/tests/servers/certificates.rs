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

    fn openssl(&self, arguments: &[&str]) {
        let output = Command::new("openssl").args(arguments).current_dir(self.0.path()).output();
        let output = output.expect("openssl is installed (`make setup`)");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
