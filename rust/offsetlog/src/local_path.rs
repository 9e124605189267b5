//! What is given as a path must be a local one: `s3://bucket/kafka` would otherwise be a folder here that is called `s3:`.

use crate::disk::IoCall;
use crate::error::{Error, Result};
use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The one scheme of local paths.
const FILE: &[u8] = b"file";
/// The names of this machine in such a URL.
const HERE: [&[u8]; 2] = [b"", b"localhost"];

/// The path that is given: as it is, or out of a `file:` URL, in which `%20` is a blank.
///
/// One slash behind a scheme is enough, as `pathlib` and Java leave it. A scheme has two letters or more. A local folder with such a name is
/// written `./s3:/bucket`.
///
/// # Errors
/// `Argument` for the URL of an object store or of another machine.
///
/// ```
/// use offsetlog::given_path;
/// use std::path::Path;
///
/// # fn main() -> Result<(), offsetlog::Error> {
/// assert_eq!(given_path(Path::new("data/orders-0"))?, Path::new("data/orders-0"));
/// assert_eq!(given_path(Path::new("file:///mnt/my%20disk"))?, Path::new("/mnt/my disk"));
/// assert!(given_path(Path::new("s3://bucket/orders-0")).is_err());
/// # Ok(())
/// # }
/// ```
pub fn given_path(path: &Path) -> Result<Cow<'_, Path>> {
    let Some((scheme, rest)) = url(path.as_os_str().as_bytes()) else {
        return Ok(Cow::Borrowed(path));
    };
    let (host, local) = match rest.strip_prefix(b"//") {
        Some(rest) => rest.split_at(
            rest.iter()
                .position(|byte| *byte == b'/')
                .unwrap_or(rest.len()),
        ),
        None => (&b""[..], rest),
    };
    if scheme.eq_ignore_ascii_case(FILE) && HERE.contains(&host) && !local.is_empty() {
        return Ok(Cow::Owned(OsString::from_vec(decoded(local)).into()));
    }
    let text = path.to_string_lossy();
    let reason = format!(
        "{text:?} is in an object store or on another machine, and only local paths are read and written: copy it to a disk, or mount the \
         store and give the path there; a local folder of this name is \"./{text}\""
    );
    Err(Error::argument("path", reason))
}

/// The absolute path of what is given, as [`given_path`] reads it. Every call that takes a path from outside begins with it: a process may
/// change its working directory later.
///
/// # Errors
/// As there; `Io` for an empty path, or without a working directory.
pub fn local_path(path: impl AsRef<Path>) -> Result<PathBuf> {
    let path = path.as_ref();
    if is_absolute_already(path.as_os_str().as_bytes()) {
        return Ok(path.to_path_buf());
    }
    let path = given_path(path)?;
    std::path::absolute(&path).map_err(|error| Error::io(IoCall::Resolve, &path, error))
}

/// A name in a directory, as [`Path::join`], with room for both from the start.
pub(crate) fn joined(directory: &Path, name: &str) -> PathBuf {
    let mut path = PathBuf::with_capacity(directory.as_os_str().len() + 1 + name.len());
    path.push(directory);
    path.push(name);
    path
}

/// Whether a path is what [`std::path::absolute`] would make of it, as nearly all are that come from a listing.
fn is_absolute_already(path: &[u8]) -> bool {
    let mut before = b' ';
    let is_odd = |byte: &u8| {
        // Where a dot begins a name it may be one that stands for a folder.
        let is_odd = before == b'/' && matches!(byte, b'/' | b'.');
        before = *byte;
        is_odd
    };
    path.starts_with(b"/") && !path.iter().any(is_odd)
}

/// The scheme of a URL, and what is behind its colon; `None` for any other text.
fn url(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (scheme, rest) = (text.get(..colon)?, text.get(colon + 1..)?);
    let is_scheme = scheme.len() > 1
        && scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(byte));
    (is_scheme && rest.starts_with(b"/")).then_some((scheme, rest))
}

/// A path with each `%` and two hexadecimal digits as the byte that they stand for.
fn decoded(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, more)) = rest.split_first() {
        let digits = more.get(..2).filter(|_| *first == b'%');
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let byte = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(byte.unwrap_or(*first));
        rest = match byte {
            Some(_) => more.get(2..).unwrap_or_default(),
            None => more,
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn stores_and_other_machines_are_refused() {
        for text in [
            "s3://bucket/kafka",
            "s3:/bucket/kafka",
            "S3A://bucket",
            "gs://bucket/kafka",
            "abfss://c@account.dfs.core.windows.net/kafka",
            "https://host/kafka",
            "dbfs:/kafka",
            "file://host/kafka",
            "file://",
            "a+b.c-1://x",
        ] {
            for refused in [
                given_path(Path::new(text)).map(|_| ()),
                local_path(text).map(|_| ()),
            ] {
                let error = refused.unwrap_err();
                assert!(
                    matches!(error.kind(), ErrorKind::Argument { name: "path", .. }),
                    "{text}"
                );
                assert!(error.to_string().contains(text), "{error}");
            }
        }
    }

    #[test]
    fn other_texts_are_paths() {
        for text in [
            "orders-0",
            "./s3:/bucket",
            "/mnt/s3://bucket",
            "s3:",
            "s3:bucket",
            "c:/kafka",
            "://x",
            "1s://x",
            "a b://x",
            "data/x:/y",
            "file:kafka",
            "",
        ] {
            let path = Path::new(text);
            assert_eq!(given_path(path).unwrap().as_os_str(), text);
        }
    }

    #[test]
    fn a_file_url_is_its_path() {
        for (url, expected) in [
            ("file:///mnt/kafka", "/mnt/kafka"),
            ("file:/mnt/kafka", "/mnt/kafka"),
            ("FILE://localhost/mnt/kafka", "/mnt/kafka"),
            ("file:///my%20disk/%C3%a4", "/my disk/\u{e4}"),
            ("file:///100%/%zz/%2", "/100%/%zz/%2"),
        ] {
            assert_eq!(
                given_path(Path::new(url)).unwrap(),
                Path::new(expected),
                "{url}"
            );
            assert_eq!(local_path(url).unwrap(), Path::new(expected), "{url}");
        }
        assert!(local_path("a").unwrap().is_absolute());
        assert!(local_path("").is_err());
    }
}
