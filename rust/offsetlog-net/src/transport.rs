//! Runs a [`Service`](crate::Service) on sockets, as Kafka's `SocketServer` does: a thread for each connection, one request of a connection
//! in work at a time, records from file to socket without a copy.
//!
//! Each client costs a bounded amount: connections, bytes of a request, of all requests together and of answers that were not taken are
//! limited, and each wait for a client has a deadline. What one connection sends is in buffers of that connection only.

mod budget;
mod channel;
mod clock;
mod connection;
mod ended;
mod http;
mod log;
mod metrics;
mod options;
mod server;
#[cfg(test)]
mod tests;
mod turns;

pub use connection::answer_all;
pub use log::{Event, EventLevel, EventLog};
pub use options::{MoreMetrics, ServerError, ServerLimits, ServerOptions};
pub use server::{Bound, Server};
