//! The headers of requests and responses.
//!
//! A request of a flexible version has header version 2, any other has version 1; the client id is a text of the older encoding in both,
//! so that any server can read any header. A response of a flexible version has header version 1, any other has version 0. The response
//! to `ApiVersions` always has version 0: a client that asks for a version that the server does not know must be able to read it.

use super::{Api, api, apis};
use crate::cursor::Reader;
use crate::error::{Fault, FormatError, Part};
use crate::message::read_unsigned;
use alloc::vec::Vec;

/// The header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// Which request follows.
    pub api_key: i16,
    /// In which version.
    pub api_version: i16,
    /// What the response repeats.
    pub correlation_id: i32,
    /// What the client calls itself, UTF-8 if it keeps to the rules.
    pub client_id: Option<&'a [u8]>,
}

impl<'a> RequestHeader<'a> {
    /// Reads a header. The body follows at once.
    ///
    /// The version need not be known: a server answers an `ApiVersions` of a later version than its own. A key that is not known has a
    /// header that is taken for one of version 1.
    ///
    /// # Errors
    /// `Truncated`, `Length` or `Varint` for bytes that are not a header.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, FormatError> {
        let api_key = reader.read_i16()?;
        let api_version = reader.read_i16()?;
        let correlation_id = reader.read_i32()?;
        let start = *reader;
        let length = i64::from(reader.read_i16()?);
        let client_id = match usize::try_from(length) {
            Ok(length) => Some(reader.bytes(length)?),
            Err(_) if length == -1 => None,
            Err(_) => {
                return Err(start.error(Fault::Length {
                    found: length,
                    minimum: -1,
                    maximum: i64::from(i16::MAX),
                }));
            }
        };
        if api(api_key).is_some_and(|api| api.request.is_flexible(api_version)) {
            skip_tagged(reader)?;
        }
        Ok(Self {
            api_key,
            api_version,
            correlation_id,
            client_id,
        })
    }

    /// Appends the header to `out`.
    ///
    /// # Errors
    /// `Field` for a client id of more than 32,767 bytes; `out` is then as it was.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let client_id = self.client_id.unwrap_or_default();
        let length = match self.client_id {
            None => -1,
            Some(_) => i16::try_from(client_id.len()).map_err(|_| {
                let fault = Fault::Field {
                    name: "clientId",
                    rule: "is longer than 32,767 bytes",
                };
                FormatError::new(Part::Protocol, 8, fault)
            })?,
        };
        out.extend_from_slice(&self.api_key.to_be_bytes());
        out.extend_from_slice(&self.api_version.to_be_bytes());
        out.extend_from_slice(&self.correlation_id.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(client_id);
        if api(self.api_key).is_some_and(|api| api.request.is_flexible(self.api_version)) {
            out.push(0);
        }
        Ok(())
    }
}

/// The header of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The one of the request.
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// Reads the header of a response to a request of this API and version.
    ///
    /// # Errors
    /// `Truncated` or `Varint` for bytes that are not a header.
    pub fn read(api: &Api, version: i16, reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let correlation_id = reader.read_i32()?;
        if is_flexible(api, version) {
            skip_tagged(reader)?;
        }
        Ok(Self { correlation_id })
    }

    /// Appends the header of a response to a request of this API and version.
    pub fn write(&self, api: &Api, version: i16, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.correlation_id.to_be_bytes());
        if is_flexible(api, version) {
            out.push(0);
        }
    }
}

const fn is_flexible(api: &Api, version: i16) -> bool {
    api.key != apis::API_VERSIONS.key && api.response.is_flexible(version)
}

/// Steps over tagged fields; no header has one that is known.
fn skip_tagged(reader: &mut Reader<'_>) -> Result<(), FormatError> {
    for _ in 0..read_unsigned(reader)? {
        read_unsigned(reader)?;
        let size = read_unsigned(reader)? as usize;
        reader.bytes(size)?;
    }
    Ok(())
}
