//! The files that the keys of a store in etcd name.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use cluster_keys::EtcdConf;
use cni_spec::{CniError, Code};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// TLS with the node's certificate; the members' are verified.
///
/// # Errors
/// Code 7: a file that is missing, unreadable, of another kind, or a key that others may read.
pub(super) fn tls(conf: &EtcdConf) -> Result<Arc<ClientConfig>, CniError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("caFile", &conf.ca_file)? {
        roots.add(certificate).map_err(|error| unusable("caFile", &conf.ca_file, &error.to_string()))?;
    }
    let bytes = read_key(&conf.key_file)?;
    let key = PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_no_content| unusable("keyFile", &conf.key_file, "it has no private key in PEM"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    let mut config = builder
        .map_err(|error| CniError::new(Code::IO, format!("cannot use TLS 1.3: {error}")))?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates("certFile", &conf.cert_file)?, key)
        .map_err(|error| unusable("certFile", &conf.cert_file, &format!("with the key of keyFile: {error}")))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn unusable(key: &str, path: &Path, why: &str) -> CniError {
    let key = format!("ipam.store.{key}");
    CniError::invalid_key(&key, path.display(), why)
}

fn read(key: &str, path: &Path) -> Result<Vec<u8>, CniError> {
    fs::read(path).map_err(|error| unusable(key, path, &format!("the file cannot be read: {error}")))
}

fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, CniError> {
    let bytes = read(key, path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(unusable(key, path, "it has no certificate in PEM")),
    }
}

/// The key file, which only its owner may read: looked at and read by one opening.
fn read_key(path: &Path) -> Result<Vec<u8>, CniError> {
    let failed = |error: io::Error| unusable("keyFile", path, &format!("the file cannot be read: {error}"));
    let mut file = fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
        return Err(unusable("keyFile", path, &format!("others may read it: chmod 600 {}", path.display())));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
