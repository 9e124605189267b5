//! Bounds on what bytes from a file can make the engine do.

/// Limits of one open log. Each one that is reached gives an error that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest batch on disk in bytes, header included.
    pub max_batch_bytes: u64,
    /// Largest batch after decompression in bytes.
    pub max_decompressed_bytes: u64,
    /// Files held open at the same time by one log.
    pub max_open_files: usize,
    /// Largest checkpoint, snapshot or metadata file in bytes.
    pub max_text_file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_batch_bytes: 64 << 20,
            max_decompressed_bytes: 256 << 20,
            max_open_files: 256,
            max_text_file_bytes: 16 << 20,
        }
    }
}
