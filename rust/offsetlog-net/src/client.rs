//! A connection to a Kafka broker from the client's side: a request goes out, its response comes in, one after the other or several on
//! their way.

mod connection;
mod error;
mod login;

pub(crate) use connection::shown;
pub use connection::{ClientOptions, Connection};
pub use error::ClientError;
