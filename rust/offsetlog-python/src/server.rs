//! `Server`: log dirs that Kafka clients read, from threads that never touch the interpreter.

use crate::interrupt::detached;
use crate::log::open_options;
use crate::options::{OpenValues, ServerValues};
use crate::raise::{misuse, raise};
use offsetlog::BrokerSettings;
use offsetlog::disk::{RealDisk, process_id};
use offsetlog_net::server::{OpenTransactions, Until};
use offsetlog_net::serving::{Serving, ServingError, ServingOptions};
use offsetlog_net::transport::{Event, EventLevel, ServerLimits};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Events that wait to be asked for; older ones are dropped.
const EVENTS_MAX: usize = 1000;

/// Level, kind, the client's address, text.
type EventRow = (&'static str, String, Option<String>, String);

#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct Server {
    serving: Mutex<Option<Serving>>,
    events: Arc<Mutex<VecDeque<EventRow>>>,
    bootstrap_servers: String,
    metrics_address: Option<String>,
    /// A child after a fork has none of the threads.
    pid: u32,
}

#[pymethods]
impl Server {
    #[new]
    fn new(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        options: OpenValues,
        server: ServerValues,
    ) -> PyResult<Self> {
        let events = Arc::new(Mutex::new(VecDeque::new()));
        let told = Arc::clone(&events);
        let broker_settings = server
            .broker
            .map(|path| BrokerSettings::read(&RealDisk, &path))
            .transpose()
            .map_err(|error| raise(py, &error))?;
        let options = ServingOptions {
            paths,
            topics: server.topics,
            listen: server.listen,
            advertise: server.advertise,
            until: if server.high_watermark {
                Until::HighWatermark
            } else {
                Until::LogEnd
            },
            open_transactions: if server.decide {
                OpenTransactions::Decide {
                    without_state: server.without_state,
                }
            } else {
                OpenTransactions::Wait
            },
            groups: server.groups,
            without_offsets: server.without_offsets,
            broker_settings,
            metadata: server.metadata,
            tls_certificate: server.tls_certificate,
            tls_key: server.tls_key,
            tls_client_ca: server.tls_client_ca,
            users: server.users,
            insecure: server.insecure,
            metrics: server.metrics,
            limits: ServerLimits {
                connections_max: server.max_connections,
                idle_timeout: Duration::from_millis(server.idle_timeout_ms),
                ..ServerLimits::default()
            },
            open: open_options(&options),
            log: Some(Arc::new(move |event: &Event<'_>| {
                let mut events = told.lock().unwrap_or_else(PoisonError::into_inner);
                if events.len() >= EVENTS_MAX {
                    events.pop_front();
                }
                events.push_back(row(event));
            })),
        };
        let serving = detached(py, || Serving::start(&options));
        let serving = serving.map_err(|error| refused(py, error))?;
        Ok(Self {
            bootstrap_servers: serving.bootstrap_servers(),
            metrics_address: serving.metrics_address().map(|it| it.to_string()),
            serving: Mutex::new(Some(serving)),
            events,
            pid: process_id(),
        })
    }

    #[getter]
    fn bootstrap_servers(&self) -> &str {
        &self.bootstrap_servers
    }

    #[getter]
    fn metrics_address(&self) -> Option<&str> {
        self.metrics_address.as_deref()
    }

    #[getter]
    fn running(&self, py: Python<'_>) -> bool {
        self.pid == process_id() && py.detach(|| self.lock().is_some())
    }

    fn connections(&self, py: Python<'_>) -> usize {
        if self.pid != process_id() {
            return 0;
        }
        py.detach(|| self.lock().as_ref().map_or(0, Serving::connections))
    }

    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        if self.pid != process_id() {
            return Err(misuse(
                py,
                "LogClosedError",
                "the server runs in the process that this one was forked from",
            ));
        }
        let text = py.detach(|| self.lock().as_ref().map(Serving::metrics));
        text.ok_or_else(|| misuse(py, "LogClosedError", "the server has been stopped"))
    }

    fn events(&self, py: Python<'_>) -> Vec<EventRow> {
        if self.pid != process_id() {
            return Vec::new();
        }
        py.detach(|| {
            let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            events.drain(..).collect()
        })
    }

    fn stop(&self, py: Python<'_>) {
        if self.pid != process_id() {
            return;
        }
        py.detach(|| {
            let serving = self.lock().take();
            if let Some(serving) = serving {
                serving.stop();
            }
        });
    }
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, Option<Serving>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.pid != process_id() {
            // Nobody is there to be waited for, and the sockets are the parent's.
            // Without the lock, which a thread of the parent may have held at the fork.
            let serving = self.serving.get_mut();
            mem::forget(serving.unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

fn row(event: &Event<'_>) -> EventRow {
    let level = match event.level {
        EventLevel::Info => "info",
        EventLevel::Warning => "warning",
        EventLevel::Error => "error",
    };
    let peer = event.peer.map(|peer| peer.to_string());
    (level, event.kind.to_owned(), peer, event.text.clone())
}

fn refused(py: Python<'_>, error: ServingError) -> PyErr {
    match error {
        ServingError::Engine(error) => raise(py, &error),
        ServingError::Server(offsetlog_net::transport::ServerError::Bind { address, source }) => {
            PyOSError::new_err((
                source.raw_os_error().unwrap_or(5),
                format!("cannot listen at {address}: {source}"),
            ))
        }
        ServingError::Argument { name, reason } => {
            raise(py, &offsetlog::Error::argument(name, reason))
        }
        ServingError::Users(error) => {
            raise(py, &offsetlog::Error::argument("users", error.to_string()))
        }
        ServingError::Server(error) => {
            raise(py, &offsetlog::Error::argument("listen", error.to_string()))
        }
        other => raise(py, &offsetlog::Error::argument("server", other.to_string())),
    }
}
