//! A disk in front of another one that fails chosen calls.
#[derive(Debug)]
pub struct FaultDisk;
