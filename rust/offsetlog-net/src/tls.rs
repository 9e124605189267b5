//! TLS by rustls, from PEM files, for both sides.

#[cfg(feature = "pkcs12")]
mod stores;

use crate::socket::Socket;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a server encrypts: TLS 1.2 and 1.3.
#[derive(Debug, Clone)]
pub struct TlsServer(Arc<ServerConfig>);

/// How a client encrypts, and whom it believes.
#[derive(Debug, Clone)]
pub struct TlsClient(Arc<ClientConfig>);

/// Why certificates or keys cannot be used.
#[derive(Debug)]
pub struct TlsError {
    path: Option<PathBuf>,
    reason: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}: {}", path.display(), self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for TlsError {}

impl TlsServer {
    /// A server with the certificate chain of one PEM file and the key of another, or of the same. With `client_ca` only clients whose
    /// certificate one of its certificates has signed get in.
    ///
    /// # Errors
    /// A file cannot be read, holds nothing of use, or certificate and key do not belong together.
    pub fn load(
        certificate: &Path,
        key: &Path,
        client_ca: Option<&Path>,
    ) -> Result<Self, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(other)?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = verifier.build().map_err(|error| at(path, error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder
            .with_single_cert(certificates(certificate)?, private_key(key)?)
            .map_err(|error| at(key, error))?;
        Ok(Self(Arc::new(config)))
    }

    /// Takes the client's handshake, until the socket's deadline.
    pub(crate) fn accept(
        &self,
        mut socket: Socket,
    ) -> io::Result<StreamOwned<ServerConnection, Socket>> {
        let mut connection =
            ServerConnection::new(Arc::clone(&self.0)).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(connection, socket))
    }
}

impl TlsClient {
    /// A client that believes servers whose certificate one of those in `ca` has signed, and that shows the certificate of `identity`, a
    /// chain and a key, to servers that ask for one.
    ///
    /// # Errors
    /// A file cannot be read, holds nothing of use, or certificate and key do not belong together.
    pub fn load(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let chain = identity
            .map(|(certificate, key)| Ok((certificates(certificate)?, private_key(key)?)))
            .transpose()?;
        Self::of(roots(ca)?, chain)
    }

    /// As [`load`](Self::load), from PKCS#12 stores as Java's clients have them: a trust store, and a key store with one key, each with its
    /// password.
    ///
    /// # Errors
    /// A file cannot be read, a password is wrong, or nothing of use is in a store.
    #[cfg(feature = "pkcs12")]
    pub fn load_pkcs12(
        trust_store: (&Path, &str),
        key_store: Option<(&Path, &str)>,
    ) -> Result<Self, TlsError> {
        let roots = stores::roots(trust_store.0, trust_store.1)?;
        let identity = key_store.map(|(path, password)| stores::identity(path, password));
        Self::of(roots, identity.transpose()?)
    }

    /// As [`load`](Self::load), from stores of either kind: a PKCS#12 store has a password, a PEM file has none.
    ///
    /// # Errors
    /// As there, and as of [`load_pkcs12`](Self::load_pkcs12).
    #[cfg(feature = "pkcs12")]
    pub fn load_stores(
        trust: (PathBuf, Option<String>),
        identity: Option<(PathBuf, Option<String>)>,
    ) -> Result<Self, TlsError> {
        let roots = match trust {
            (path, Some(password)) => stores::roots(&path, &password)?,
            (path, None) => roots(&path)?,
        };
        let identity = identity.map(|(path, password)| match password {
            Some(password) => stores::identity(&path, &password),
            None => Ok((certificates(&path)?, private_key(&path)?)),
        });
        Self::of(roots, identity.transpose()?)
    }

    /// As [`load`](Self::load), from PEM files: this build has no PKCS#12.
    ///
    /// # Errors
    /// As there; a file with a password.
    #[cfg(not(feature = "pkcs12"))]
    pub fn load_stores(
        trust: (PathBuf, Option<String>),
        identity: Option<(PathBuf, Option<String>)>,
    ) -> Result<Self, TlsError> {
        for (path, password) in std::iter::once(&trust).chain(&identity) {
            if password.is_some() {
                return Err(at(path, "this build reads PEM files only"));
            }
        }
        let identity = identity
            .as_ref()
            .map(|(path, _)| (path.as_path(), path.as_path()));
        Self::load(&trust.0, identity)
    }

    fn of(
        roots: RootCertStore,
        identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    ) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(other)?
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(other)?,
        };
        Ok(Self(Arc::new(config)))
    }

    /// Shakes hands with `host`, until the socket's deadline.
    pub(crate) fn connect(
        &self,
        host: &str,
        mut socket: Socket,
    ) -> io::Result<StreamOwned<ClientConnection, Socket>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut connection =
            ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(connection, socket))
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| at(path, error))?;
    if chain.is_empty() {
        return Err(at(path, "no certificate is in it; PEM is expected"));
    }
    Ok(chain)
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| at(path, error))?;
    }
    Ok(roots)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| {
        at(
            path,
            format!("{error}; an unencrypted key in PEM is expected (openssl pkcs8 -in KEY -out NEW decrypts one)"),
        )
    })
}

fn at(path: &Path, reason: impl fmt::Display) -> TlsError {
    TlsError {
        path: Some(path.to_path_buf()),
        reason: reason.to_string(),
    }
}

fn other(reason: impl fmt::Display) -> TlsError {
    TlsError {
        path: None,
        reason: reason.to_string(),
    }
}
