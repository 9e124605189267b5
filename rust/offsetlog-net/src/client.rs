//! A client's connection to a Kafka broker: sends requests and receives responses, one at a time or with several in flight.

mod connection;
mod error;
mod login;

pub(crate) use connection::shown;
pub use connection::{ClientOptions, Connection};
pub use error::ClientError;
