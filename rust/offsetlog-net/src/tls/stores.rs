//! Java's key and trust stores (PKCS#12).

use super::{TlsError, at};
use offsetlog::disk::{RealDisk, read_whole};
use p12_keystore::{KeyStore, KeyStoreEntry, Pkcs12ImportPolicy};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::Path;

/// Largest store, in bytes.
const STORE_BYTES_MAX: u64 = 16 << 20;

fn open(path: &Path, password: &str) -> Result<KeyStore, TlsError> {
    let bytes = read_whole(&RealDisk, path, STORE_BYTES_MAX).map_err(|error| at(path, error))?;
    if bytes.starts_with(&[0xfe, 0xed, 0xfe, 0xed]) {
        return Err(at(
            path,
            "this is a JKS store; keytool -importkeystore -srckeystore OLD -destkeystore NEW -deststoretype pkcs12 makes a PKCS12 one of it",
        ));
    }
    KeyStore::from_pkcs12(&bytes, password, Pkcs12ImportPolicy::Relaxed).map_err(|error| {
        at(
            path,
            format!("{error}; a PKCS12 store is expected, and its password"),
        )
    })
}

/// All certificates of a store; those of keys too, as in Java.
pub(super) fn roots(path: &Path, password: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for (_, entry) in open(path, password)?.entries() {
        let certificates = match entry {
            KeyStoreEntry::Certificate(certificate) => std::slice::from_ref(certificate),
            KeyStoreEntry::PrivateKeyChain(chain) => chain.certs().get(..1).unwrap_or_default(),
            KeyStoreEntry::Secret(_) => &[],
        };
        for certificate in certificates {
            let der = CertificateDer::from(certificate.as_der().to_vec());
            roots.add(der).map_err(|error| at(path, error))?;
        }
    }
    if roots.is_empty() {
        return Err(at(path, "no certificate is in it"));
    }
    Ok(roots)
}

/// The key of a store, and its chain.
pub(super) fn identity(
    path: &Path,
    password: &str,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let store = open(path, password)?;
    let (_, chain) = store
        .private_key_chain()
        .ok_or_else(|| at(path, "no private key is in it"))?;
    let certificates = chain.certs().iter();
    let certificates = certificates
        .map(|certificate| CertificateDer::from(certificate.as_der().to_vec()))
        .collect();
    let key = PrivatePkcs8KeyDer::from(chain.key().as_der().to_vec());
    Ok((certificates, key.into()))
}
